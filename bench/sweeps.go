package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/dedup"
)

// sweeps measures messages on eight connections, alone and beside a Sweeper that deletes expired keys of the same
// table.
func (b *bench) sweeps(ctx context.Context) error {
	const conns, mostPerSecond = 8, 60_000
	slot, n := 5*b.size.slot, b.size.rounds/2+1
	b.progress("sweeps")
	return b.server.inWorld(ctx, conns+2, false, func(ctx context.Context, w *world) error {
		expired := int(slot.Seconds() * mostPerSecond * float64(n+1))
		_, err := w.pool.Exec(ctx, `INSERT INTO processed_messages (key, expires_at, fingerprint, consumer, id)
			SELECT gen_random_uuid(), now() - '1 hour'::interval, i, 'billing', 'order-' || lpad(i::text, 14, '0') FROM generate_series(1, $1::bigint) AS i`, expired)
		if err != nil {
			return err
		}
		if _, err := w.pool.Exec(ctx, `VACUUM (ANALYZE) processed_messages`); err != nil {
			return err
		}
		c, err := w.inMemory()
		if err != nil {
			return err
		}
		hs := w.number([]*handling{{name: "alone", do: each(process(c.plain))}, {name: "beside a sweep", base: "alone", do: each(process(c.plain))}})
		worst, swept := series{}, series{}
		for i, h := range hs {
			h.measure = func(ctx context.Context) (perSecond float64, err error) {
				var took durations
				measure := func(ctx context.Context) error {
					perSecond, err = rate(ctx, conns, slot, took.timed(h.run))
					return err
				}
				if i == 0 {
					err = measure(ctx)
				} else {
					var keys float64
					keys, err = beside(ctx, w.store, measure)
					swept[h.name] = append(swept[h.name], keys/slot.Seconds())
				}
				if err == nil {
					worst[h.name] = append(worst[h.name], percentile(took.all, 99))
				}
				return perSecond, err
			}
		}
		ways := []way{{hs[0].name, "", hs[0].measure}, {hs[1].name, "alone", hs[1].measure}}
		figures, err := rounds(ctx, n, false, ways)
		if err != nil {
			return err
		}
		t := b.report.table("sweeps", "")
		t.add("messages/s", ways, figures)
		t.add("p99, ms", ways, worst)
		t.add("keys swept/s", ways[1:], swept)
		return w.auditAll(ctx, hs)
	})
}

// beside runs fn beside a Sweeper, and returns how many keys that deleted.
func beside(ctx context.Context, store dedup.Purger, fn func(context.Context) error) (keys float64, err error) {
	p := &purger{Purger: store}
	// The lease ends before the next Sweeper begins.
	s, err := dedup.NewSweeper(dedup.SweeperConfig{
		Store: p, Every: 10 * time.Millisecond, Lease: 20 * time.Millisecond, AlarmAfter: 24 * time.Hour,
	})
	if err != nil {
		return 0, err
	}
	err = while(ctx, s.Run, fn)
	if err == nil && p.done.Load() {
		err = fmt.Errorf("the sweep reached the end of the table: there were too few expired keys")
	}
	return float64(p.keys.Load()), err
}

// purger counts deleted keys.
type purger struct {
	dedup.Purger
	keys atomic.Int64
	done atomic.Bool
}

// Purge implements dedup.Purger.
func (p *purger) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	r, err := p.Purger.Purge(ctx, by)
	p.keys.Add(int64(r.Keys))
	if r.Done {
		p.done.Store(true)
	}
	return r, err
}

// durations are how long calls took.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) timed(do func(context.Context) (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		began := time.Now()
		n, err := do(ctx)
		took := time.Since(began)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = append(d.all, took)
		return n, err
	}
}
