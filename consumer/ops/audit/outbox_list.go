package audit

import (
	"context"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/outgoing"
)

// confirmed lists the messages that the broker has confirmed.
func (c *Config) confirmed(ctx context.Context, of OutboxConfig, r *Report) (*listing, error) {
	if of.PerClaim > 0 {
		return c.listDerived(ctx, of, r)
	}
	list, err := c.listSent(ctx, of)
	if err != nil {
		return nil, err
	}
	if list.known = len(list.byID) > 0; !list.known {
		list.whole, r.NoLosses = true, true
		since := ""
		if !of.Since.IsZero() {
			since = " since " + of.Since.UTC().Format(time.RFC3339)
		}
		r.Notes = append(r.Notes, fmt.Sprintf("outbox_sent has no message of topic %s%s: this looked for repeated messages, and not for lost ones; set Outbox.KeepSent in the "+
			"pgxstore.Config or sqlstore.Config of the workers to keep what is sent from then on, or OutboxConfig.PerClaim if each claim enqueues the same number of messages", of.Topic, since))
	}
	return list, nil
}

// listSent reads outbox_sent. A sample is the messages that were sent one after the other from a random time on.
func (c *Config) listSent(ctx context.Context, of OutboxConfig) (*listing, error) {
	list := &listing{whole: true}
	from := sent{at: -1} // before the first
	if c.Sample > 0 {
		var n int
		query := fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM %s WHERE topic = %s AND enqueued_at >= %s LIMIT %d) AS part`,
			c.table("outbox_sent"), c.param(1), c.instant(2), c.Sample+1)
		if err := c.DB.QueryRowContext(ctx, query, of.Topic, of.sinceMicros()).Scan(&n); err != nil {
			return nil, fmt.Errorf("audit: count outbox_sent: %w", err)
		}
		if list.whole = n <= c.Sample; !list.whole {
			var first, last sql.NullInt64
			query = fmt.Sprintf(`SELECT min(%[1]s), max(%[1]s) FROM %[2]s WHERE topic = %[3]s AND enqueued_at >= %[4]s`,
				c.micros("sent_at"), c.table("outbox_sent"), c.param(1), c.instant(2))
			if err := c.DB.QueryRowContext(ctx, query, of.Topic, of.sinceMicros()).Scan(&first, &last); err != nil {
				return nil, fmt.Errorf("audit: read outbox_sent: %w", err)
			}
			from.at = first.Int64 + mathrand.Int64N(last.Int64-first.Int64+1)
		}
	}
	for _, forward := range []bool{true, false} {
		if from.at < 0 && !forward {
			break
		}
		at := from
		for c.Sample == 0 || len(list.byID) < c.Sample || list.whole {
			limit := page
			if !list.whole {
				limit = min(page, c.Sample-len(list.byID))
			}
			rows, err := c.readSent(ctx, of, at, forward, limit)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				list.add(row.id, &published{enqueued: row.enqueued})
				if row.time().After(list.last) {
					list.last = row.time()
				}
				at = row
			}
			if len(rows) < limit {
				break
			}
		}
	}
	return list, nil
}

func (of *OutboxConfig) sinceMicros() int64 {
	if of.Since.IsZero() {
		return 0
	}
	return of.Since.UnixMicro()
}

// sent is a row of outbox_sent.
type sent struct {
	at       int64 // microseconds since 1970 UTC
	seq      int64
	id       string
	enqueued time.Time
}

func (s sent) time() time.Time { return time.UnixMicro(s.at) }

// readSent reads the next rows behind one, or those before it.
func (c *Config) readSent(ctx context.Context, of OutboxConfig, at sent, forward bool,
	limit int,
) (found []sent, err error) {
	than, order := ">", "ASC"
	if !forward {
		than, order = "<", "DESC"
	}
	query := fmt.Sprintf(`SELECT %[1]s, seq, id, %[2]s FROM %[3]s
WHERE topic = %[4]s AND enqueued_at >= %[5]s AND sent_at %[6]s= %[7]s AND (sent_at %[6]s %[8]s OR seq %[6]s %[9]s)
ORDER BY sent_at %[10]s, seq %[10]s LIMIT %[11]d`,
		c.micros("sent_at"), c.micros("enqueued_at"), c.table("outbox_sent"), c.param(1), c.instant(2), than,
		c.instant(3), c.instant(4), c.param(5), order, limit)
	args := []any{of.Topic, of.sinceMicros(), at.at, at.at, at.seq}
	err = each(ctx, c.DB, "outbox_sent", query, args, func(rows *sql.Rows) error {
		var row sent
		var enqueued int64
		err := rows.Scan(&row.at, &row.seq, &row.id, &enqueued)
		row.enqueued = time.UnixMicro(enqueued)
		found = append(found, row)
		return err
	})
	return found, err
}

// listDerived derives the IDs of the messages that claims have enqueued, and leaves out those that are still in the
// outbox. A claim and its messages are committed together, so both are read in one snapshot.
func (c *Config) listDerived(ctx context.Context, of OutboxConfig, r *Report) (*listing, error) {
	shortest, longest, err := c.windows(ctx)
	if err != nil {
		return nil, err
	}
	list, listed := &listing{known: true}, Report{}
	// how exactly the time of a claim is known; claims that may be older than Since
	unsure, early := longest-shortest+dedup.MaxAhead, 0
	quiet := *c
	quiet.Progress = nil
	err = quiet.pages(ctx, &listed, func(tx *sql.Tx, own []claim) error {
		derived := map[string]*published{}
		for _, claim := range own {
			// Or up to unsure later: a claim expires its window after its message's time, or after now.
			enqueued := claim.expires.Add(-longest - dedup.MaxAhead)
			if enqueued.Before(of.Since) {
				if !enqueued.Add(unsure).Before(of.Since) {
					early++
				}
				continue
			}
			listed.Checked++
			for _, id := range deriveIDs(claim.key, of.Topic, of.PerClaim) {
				derived[id] = &published{key: claim.key, enqueued: enqueued}
			}
		}
		if err := c.leaveOut(ctx, tx, derived); err != nil {
			return err
		}
		for id, p := range derived {
			list.add(id, p)
		}
		return nil
	})
	list.whole = listed.Whole && early == 0
	r.Skipped = listed.Skipped + early
	if early > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d claims were skipped, because they may be older than OutboxConfig.Since: when a claim was made is known to within %v only. "+
			"To compare their messages, set OutboxConfig.Since %[2]v earlier", early, unsure))
	}
	return list, err
}

// windows returns the shortest and the longest window that Consumer has run with.
func (c *Config) windows(ctx context.Context) (shortest, longest time.Duration, err error) {
	var least, most sql.NullInt64
	query := fmt.Sprintf(`SELECT min(window_seconds), max(window_seconds) FROM %s WHERE consumer = %s`,
		c.table("txonce_windows"), c.param(1))
	if err := c.DB.QueryRowContext(ctx, query, c.Consumer).Scan(&least, &most); err != nil {
		return 0, 0, fmt.Errorf("audit: read txonce_windows: %w", err)
	}
	return time.Duration(least.Int64) * time.Second, time.Duration(most.Int64) * time.Second, nil
}

// deriveIDs returns the IDs that a handler's first n messages without ID to a topic get. See consumer.Scope.
func deriveIDs(key dedup.Key, topic string, n int) []string {
	seed := outgoing.Seed(key.Hash(), key.ID)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = outgoing.ID(seed, topic, i)
	}
	return ids
}

// leaveOut deletes those from derived that are still in the outbox.
func (c *Config) leaveOut(ctx context.Context, tx *sql.Tx, derived map[string]*published) error {
	ids := make([]any, 0, len(derived))
	for id := range derived {
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		part := ids[:min(page, len(ids))]
		ids = ids[len(part):]
		for _, table := range []string{"outbox_messages", "outbox_delayed", "outbox_parked"} {
			query := fmt.Sprintf(`SELECT id FROM %s WHERE id IN (%s)`, c.table(table), c.list(1, len(part)))
			if err := each(ctx, tx, table, query, part, func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				delete(derived, id)
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
