package operator

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
)

// readPositions reads one or two rows for each source of a consumer: the partition that was rewound last, and the one
// with the most tries. Each has the figures of all partitions.
func readPositions(ctx context.Context, q Queryer, st *dialect.Operator,
	of func(name string) *ops.ConsumerStatus,
) error {
	return sqlrows.Each(ctx, q, st.Positions.Summary, nil, func(rows *sql.Rows) error {
		var consumer, source, log []byte
		var p ops.SourcePositions
		var r ops.Rewind
		var s ops.Suspect
		var oldest, at, byRewind, byTries int64
		if err := rows.Scan(&consumer, &source, &p.Partitions, &oldest, &p.Suspects, &p.Rewound, &p.Again, &p.Missing,
			&byRewind, &byTries, &r.Partition, &at, &r.From, &r.Lost, &r.To, &s.Offset, &s.Tries, &log); err != nil {
			return err
		}
		p.Source, p.Oldest, r.At, s.Partition = string(source), instant(oldest), instant(at), r.Partition
		if from, until, two := strings.Cut(string(log), "/"); two &&
			(p.Source == driver.SourceAcknowledged || p.Source == driver.SourcePublished) {
			// The zero time if it is something else.
			r.LostFrom, _ = time.Parse(time.RFC3339, from)
			r.LostUntil, _ = time.Parse(time.RFC3339, until)
		}
		c := of(string(consumer))
		if n := len(c.Positions); n == 0 || c.Positions[n-1].Source != p.Source {
			c.Positions = append(c.Positions, p)
		}
		last := &c.Positions[len(c.Positions)-1]
		if byRewind == 1 && p.Rewound > 0 {
			last.Rewind = &r
		}
		if byTries == 1 && p.Suspects > 0 {
			last.Suspect = &s
		}
		return nil
	})
}
