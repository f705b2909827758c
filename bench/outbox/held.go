package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A burst is a backlog whose draining is measured. There are several, because a checkpoint may fall into one of two seconds.
const burst, bursts = 100_000, 5

// held returns the median rate at which bursts are committed and confirmed, before and while another connection holds a
// transaction open. Each burst follows a steady load of 3,000 messages per second for the duration long. An open transaction
// keeps the database from removing rows, of any table, that were deleted after its snapshot.
//
// Both are measured in one world, in quick succession: two runs some minutes apart differ by more than the effect.
func held(ctx context.Context, k kind, long time.Duration) (free, holding float64, err error) {
	w := &world{tuned: true, seen: newConfirmed(1 << 30)}
	err = inWorld(ctx, k, w, func(ctx context.Context, s system) error {
		return relaying(ctx, s, 2*long+2*patience, func(ctx context.Context) error {
			l := &load{s: s, w: w}
			var err error
			if free, err = l.bursts(ctx, long/3); err != nil {
				return err
			}
			tx, err := w.holdOpen(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(context.WithoutCancel(ctx))
			holding, err = l.bursts(ctx, long)
			return err
		})
	})
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", k.name, err)
	}
	return free, holding, nil
}

// load is the messages for a system.
type load struct {
	s    system
	w    *world
	sent int
}

// bursts returns the median rate of bursts that each follow a steady load.
func (l *load) bursts(ctx context.Context, steady time.Duration) (perSecond float64, err error) {
	const chunk, every = 300, 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range int(steady / every) {
		<-tick.C
		if err := l.fill(ctx, chunk); err != nil {
			return 0, err
		}
	}
	rates := make([]float64, bursts)
	for i := range rates {
		if err := l.w.seen.reach(ctx, l.sent); err != nil {
			return 0, err
		}
		l.w.seen.forget()
		began := time.Now()
		if err := l.fill(ctx, burst); err != nil {
			return 0, err
		}
		if err := l.w.seen.reach(ctx, l.sent); err != nil {
			return 0, err
		}
		rates[i] = burst / time.Since(began).Seconds()
	}
	slices.Sort(rates)
	return rates[bursts/2], nil
}

func (l *load) fill(ctx context.Context, n int) error {
	l.sent += n
	return l.s.Fill(ctx, l.sent-n, l.sent)
}

// holdOpen begins a transaction with a snapshot and a transaction id.
func (w *world) holdOpen(ctx context.Context) (pgx.Tx, error) {
	tx, err := w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	return tx, effect(ctx, tx, "held open")
}
