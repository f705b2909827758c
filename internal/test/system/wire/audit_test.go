package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// found is what the database holds of the messages, and what was published.
type found struct {
	effects   map[string][]string // the runs, by the message
	claims    map[string]int
	letters   map[string]int
	outbox    map[string]int              // messages that are still there, by the topic
	published map[string]map[string]int64 // by the case: where each payload came first
}

// newFound sorts what was published by its case: a payload is c7-0 and the run.
func newFound(published map[string]int64) found {
	f := found{map[string][]string{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]map[string]int64{}}
	for payload, at := range published {
		owner, _, ours := strings.Cut(payload, "-")
		if !ours {
			continue // of a tap
		}
		if f.published[owner] == nil {
			f.published[owner] = map[string]int64{}
		}
		f.published[owner][payload] = at
	}
	return f
}

func (w *world) look(ctx context.Context) (f found, err error) {
	published, err := w.published(ctx)
	if err != nil {
		return f, fmt.Errorf("what was published: %w", err)
	}
	f = newFound(published)
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
		{f.outbox, `SELECT topic FROM outbox_messages UNION ALL SELECT topic FROM outbox_delayed
			UNION ALL SELECT topic FROM outbox_parked`},
	} {
		ids, err := w.strings(ctx, table.query)
		if err != nil {
			return f, err
		}
		for _, id := range ids {
			table.counts[id]++
		}
	}
	return f, nil
}

// settled waits until each COMMIT that was cut has arrived, and the outbox is empty.
func (w *world) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = pause(ctx, latest)
	for {
		left, err := w.strings(ctx, `SELECT topic FROM outbox_messages UNION ALL SELECT topic FROM outbox_delayed`)
		switch {
		case err == nil && len(left) == 0:
			return nil
		case pause(ctx, pollEvery):
			return errors.Join(fmt.Errorf("%d messages are in the outbox after %v: %s", len(left), limit,
				strings.Join(left[:min(len(left), 20)], " ")), err)
		}
	}
}

// audit compares the messages of the cases with what the database holds and what was published. It notes what is wrong
// in the results, and returns those in which it found something that was not known.
func (w *world) audit(ctx context.Context, results []*result) (found, []*result, error) {
	late := w.settled(ctx) // what is left is told of its case, too
	f, err := w.look(ctx)
	if err != nil {
		return f, nil, fmt.Errorf("audit: %w", errors.Join(late, err))
	}
	var wrong []*result
	for _, r := range results {
		known := len(r.bad)
		for _, fault := range judge(r, f) {
			if !slices.Contains(r.bad, fault) {
				r.bad = append(r.bad, fault)
			}
		}
		if len(r.bad) > known {
			wrong = append(wrong, r)
		}
	}
	return f, wrong, late
}

// judge returns what is wrong with a case.
func judge(r *result, f found) (bad []string) {
	fault := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	published := f.published[fmt.Sprintf("c%d", r.n)]
	runs := map[string]bool{} // that are committed and enqueue
	for _, o := range r.orders {
		effects, claims, letters := f.effects[o.ID], f.claims[o.ID], f.letters[o.ID]
		want := 1
		if o.Fails < 0 {
			want = 0
		}
		if len(effects) != want || claims != want || letters != 1-want {
			fault("%s (fails %d, twin %v): %d effects, %d claims, %d letters", o.ID, o.Fails, o.twin, len(effects), claims, letters)
		}
		for _, run := range effects {
			if o.Out == "" {
				continue
			}
			if runs[o.ID+" "+run] = true; published[o.ID+" "+run] == 0 {
				fault("%s: the outbox message of run %s was not published", o.ID, run)
			}
		}
	}
	for _, payload := range slices.Sorted(maps.Keys(published)) {
		if !runs[payload] {
			fault("published, but not committed: %q", payload)
		}
	}
	if r.ordered {
		bad = append(bad, inOrder(r, f, published)...)
	}
	if left := f.outbox[topic(r.n)]; left > 0 {
		fault("%d outbox messages are left", left)
	}
	return bad
}

// inOrder checks that the messages of one ordering key came first in the order in which they were committed.
func inOrder(r *result, f found, published map[string]int64) (bad []string) {
	last, before := int64(0), ""
	for _, o := range r.orders {
		for _, run := range f.effects[o.ID] {
			if at := published[o.ID+" "+run]; at > 0 && at < last {
				bad = append(bad, fmt.Sprintf("%s was first published at %d, and %s, which was committed before it, at %d",
					o.ID, at, before, last))
			} else if at > 0 {
				last, before = at, o.ID
			}
		}
	}
	return bad
}

// strays returns what belongs to none of the cases.
func strays(results []*result, f found) (bad []string) {
	ids, cases, topics := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range results {
		cases[fmt.Sprintf("c%d", r.n)], topics[topic(r.n)] = true, true
		for _, o := range r.orders {
			ids[o.ID] = true
		}
	}
	for what, names := range map[string][]string{
		"an effect": slices.Collect(maps.Keys(f.effects)), "a claim": slices.Collect(maps.Keys(f.claims)),
		"a dead letter": slices.Collect(maps.Keys(f.letters)),
	} {
		for _, id := range names {
			if !ids[id] {
				bad = append(bad, fmt.Sprintf("%s of %s, which no case has sent", what, id))
			}
		}
	}
	for owner := range f.published {
		if !cases[owner] {
			bad = append(bad, fmt.Sprintf("published in the name of %s, which is no case", owner))
		}
	}
	for t := range f.outbox {
		if !topics[t] {
			bad = append(bad, fmt.Sprintf("outbox messages of %s, which is no case's topic", t))
		}
	}
	slices.Sort(bad)
	return bad
}
