package operator

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/observe"
)

// counts is the JSON of a row of consumer_activity.
type counts struct {
	Messages map[observe.Outcome]int64 `json:"messages,omitempty"`
	Paused   observe.Cause             `json:"paused,omitempty"`
}

// RecordActivity implements ops.ActivityKeeper. All rows are written in one transaction, in the order of their key, so
// that two processes never wait for each other in a circle.
func (s *Service) RecordActivity(ctx context.Context, rows []ops.Activity) error {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return err
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b ops.Activity) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Node, b.Node))
	})
	if err := s.DB.Write(ctx, "record activity", func(ctx context.Context, q Queryer) error {
		for _, r := range rows {
			text, err := json.Marshal(counts{r.Messages, r.Paused})
			if err != nil {
				return fmt.Errorf("ops: activity: %w", err)
			}
			if _, err := q.ExecContext(ctx, st.AddActivity, minuteOf(r.Minute), r.Consumer, columns.Text(r.Node),
				string(text)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(rows) == 0 || minuteOf(rows[len(rows)-1].Minute)%60 != 0 { // once an hour is often enough
		return nil
	}
	return s.DB.Write(ctx, "forget activity", func(ctx context.Context, q Queryer) error {
		_, err := q.ExecContext(ctx, st.ForgetActivity, minuteOf(rows[len(rows)-1].Minute.Add(-ops.ActivityKept)))
		return err
	})
}

// Activity implements ops.ActivityKeeper.
func (s *Service) Activity(ctx context.Context, since time.Time) ([]ops.Activity, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	return readRows(ctx, s.DB, "activity", st.Activity, []any{minuteOf(since)}, func(rows *sql.Rows) (a ops.Activity, err error) {
		var minute int64
		var name, node, text []byte
		if err := rows.Scan(&minute, &name, &node, &text); err != nil {
			return a, err
		}
		var c counts
		if err := json.Unmarshal(text, &c); err != nil {
			return a, fmt.Errorf("ops: counts of consumer_activity: %w", err)
		}
		return ops.Activity{
			Minute: time.Unix(60*minute, 0).UTC(), Consumer: string(name), Node: string(node),
			Messages: c.Messages, Paused: c.Paused,
		}, nil
	})
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }
