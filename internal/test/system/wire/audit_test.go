package wire

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// found is what the database holds of the messages of a round.
type found struct {
	effects map[string][]string // the runs, by the message
	claims  map[string]int
	letters map[string]int
	outbox  []string // topics of messages that are still there
}

func (w *world) look(ctx context.Context) (f found, err error) {
	f = found{map[string][]string{}, map[string]int{}, map[string]int{}, nil}
	rows, err := w.direct.QueryContext(ctx, `SELECT name, run FROM effects`)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, run string
		if err := rows.Scan(&name, &run); err != nil {
			return f, err
		}
		f.effects[name] = append(f.effects[name], run)
	}
	if err := rows.Err(); err != nil {
		return f, err
	}
	for _, table := range []struct {
		counts map[string]int
		query  string
	}{
		{f.claims, `SELECT id FROM processed_messages WHERE consumer = 'wire'`},
		{f.letters, `SELECT message_id FROM dead_letters`},
	} {
		ids, err := w.strings(ctx, table.query)
		if err != nil {
			return f, err
		}
		for _, id := range ids {
			table.counts[id]++
		}
	}
	f.outbox, err = w.strings(ctx, `SELECT topic FROM outbox_messages UNION ALL SELECT topic FROM outbox_delayed
		UNION ALL SELECT topic FROM outbox_parked`)
	return f, err
}

// settled waits until each COMMIT that was cut has arrived, and the outbox is empty.
func (w *world) settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = pause(ctx, 2*claimTimeout)
	for {
		left, err := w.strings(ctx, `SELECT topic FROM outbox_messages`)
		if err == nil && len(left) == 0 || pause(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// audit compares the messages of the cases with what the database holds and what was published.
func (w *world) audit(ctx context.Context, results []*result) error {
	w.settled(ctx)
	f, err := w.look(ctx)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	left := map[string]bool{}
	for _, topic := range f.outbox {
		left[topic] = true
	}
	published, err := w.published(ctx)
	if err != nil {
		return fmt.Errorf("audit: what was published: %w", err)
	}
	runs := map[string]bool{} // that are committed and enqueue
	for _, r := range results {
		for _, o := range r.orders {
			w.judge(r, o, f, published)
			for _, run := range f.effects[o.ID] {
				runs[o.ID+" "+run] = o.Out != ""
			}
		}
		r.inOrder(f, published)
		if left[topic(r.n)] {
			r.fault("outbox messages are left")
		}
	}
	byCase := map[string]*result{}
	for _, r := range results {
		byCase[fmt.Sprintf("c%d", r.n)] = r
	}
	for payload := range published {
		owner, _, _ := strings.Cut(payload, "-")
		if r := byCase[owner]; r != nil && !runs[payload] {
			r.fault("published, but not committed: %q", payload)
		}
	}
	return nil
}

// judge judges one message.
func (w *world) judge(r *result, o *order, f found, published map[string]int64) {
	effects, claims, letters := f.effects[o.ID], f.claims[o.ID], f.letters[o.ID]
	want := 1
	if o.Fails < 0 {
		want = 0
	}
	if len(effects) != want || claims != want || letters != 1-want {
		r.fault("%s (fails %d, twin %v): %d effects, %d claims, %d letters", o.ID, o.Fails, o.twin, len(effects), claims, letters)
	}
	for _, run := range effects {
		if o.Out != "" && published[o.ID+" "+run] == 0 {
			r.fault("%s: the outbox message of run %s was not published", o.ID, run)
		}
	}
}

// inOrder checks that the messages of one ordering key came first in the order in which they were committed.
func (r *result) inOrder(f found, published map[string]int64) {
	if !r.ordered {
		return
	}
	last, before := int64(0), ""
	for _, o := range r.orders {
		for _, run := range f.effects[o.ID] {
			if at := published[o.ID+" "+run]; at > 0 && at < last {
				r.fault("%s was first published at %d, and %s, which was committed before it, at %d", o.ID, at, before, last)
			} else if at > 0 {
				last, before = at, o.ID
			}
		}
	}
}
