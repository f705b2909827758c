package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience limits one measurement, so that a system that loses a message ends the run.
const patience = 2 * time.Minute

// relaying runs the system's relay while fn runs.
func relaying(ctx context.Context, s system, atMost time.Duration, fn func(context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, atMost, errors.New("out of patience"))
	defer stop()
	relayed := make(chan error, 1)
	relay, end := context.WithCancel(ctx)
	go func() { relayed <- s.Relay(relay) }()
	err := fn(ctx)
	end()
	return errors.Join(err, <-relayed)
}

// drain returns how many messages per second of a backlog are confirmed, from the first confirmation to the last.
func drain(ctx context.Context, k kind, n int, delay time.Duration) (perSecond float64, err error) {
	w := &world{delay: delay, tuned: true, seen: newConfirmed(n)}
	err = inWorld(ctx, k, w, func(ctx context.Context, s system) error {
		if err := s.Fill(ctx, 0, n); err != nil {
			return fmt.Errorf("%s: fill: %w", k.name, err)
		}
		return relaying(ctx, s, patience, w.seen.wait)
	})
	return float64(n-1) / w.seen.last.Sub(w.seen.first).Seconds(), err
}

// latency returns how long after COMMIT the broker has confirmed a message, at a hundred transactions per second.
func latency(ctx context.Context, k kind, n int, tuned bool) (p50, p99 time.Duration, err error) {
	const warmUp = 30
	w := &world{tuned: tuned, seen: newConfirmed(n + warmUp)}
	committed := make(map[string]time.Time, n)
	err = inWorld(ctx, k, w, func(ctx context.Context, s system) error {
		return relaying(ctx, s, patience, func(ctx context.Context) error {
			if err := untilReady(ctx, s, w, warmUp); err != nil {
				return err
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range n {
				<-tick.C
				id := fmt.Sprint(warmUp + i)
				if err := s.Tx(ctx, id); err != nil {
					return fmt.Errorf("%s: %w", k.name, err)
				}
				committed[id] = time.Now()
			}
			return w.seen.wait(ctx)
		})
	})
	if err != nil {
		return 0, 0, err
	}
	took := make([]time.Duration, 0, n)
	for id, at := range committed {
		took = append(took, w.seen.at[id].Sub(at))
	}
	slices.Sort(took)
	return took[n/2], took[n*99/100], nil
}

// untilReady sends n messages before the measurement starts.
func untilReady(ctx context.Context, s system, w *world, n int) error {
	for i := range n {
		if err := s.Tx(ctx, fmt.Sprint(i)); err != nil {
			return err
		}
	}
	return w.seen.reach(ctx, n)
}

// bare runs the same transaction without a message.
type bare struct{ *world }

func newBare(_ context.Context, w *world) (system, error) { return bare{w}, nil }

func (b bare) Fill(context.Context, int, int) error { return nil }
func (b bare) Relay(context.Context) error          { return nil }
func (b bare) Tx(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return effect(ctx, tx, id) })
}

// transactions measures how many transactions per second each kind runs on conns connections, without a relay. The kinds
// alternate every 400 ms. It returns the ratios to the first kind in the same turn.
func transactions(ctx context.Context, kinds []kind, conns, turns int) (ratios [][]float64, err error) {
	ratios = make([][]float64, len(kinds))
	systems := make([]system, len(kinds))
	var measure func(at int) error
	measure = func(at int) error { // the calls are nested, so that all worlds exist at the same time
		if at < len(kinds) {
			return inWorld(ctx, kinds[at], &world{seen: newConfirmed(1 << 30)}, func(_ context.Context, s system) error {
				systems[at] = s
				return measure(at + 1)
			})
		}
		for turn := range turns + 1 {
			var base float64
			for i, s := range systems {
				rate, err := rate(ctx, s, conns, fmt.Sprint(turn))
				if err != nil {
					return fmt.Errorf("%s: %w", kinds[i].name, err)
				}
				if i == 0 {
					base = rate
				}
				if turn > 0 { // the first turn is a warm-up
					ratios[i] = append(ratios[i], rate/base)
				}
			}
		}
		return nil
	}
	return ratios, measure(0)
}

func rate(ctx context.Context, s system, conns int, prefix string) (perSecond float64, err error) {
	var done atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, conns)
	began := time.Now()
	for c := range conns {
		group.Go(func() {
			for i := 0; time.Since(began) < 400*time.Millisecond && errs[c] == nil; i++ {
				errs[c] = s.Tx(ctx, fmt.Sprintf("%s-%d-%d", prefix, c, i))
				done.Add(1)
			}
		})
	}
	group.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}
