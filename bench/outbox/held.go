package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// burst is what is drained at the end of a held-open transaction.
const burst = 100_000

// held is how many messages per second are committed and confirmed in a burst that follows a steady load of 3,000
// messages a second over so long a time, while another connection holds a transaction open, or not. Such a transaction
// keeps the database from removing any row that is deleted after its snapshot, in every table.
func held(ctx context.Context, k kind, long time.Duration, hold bool) (perSecond float64, err error) {
	const chunk, every = 300, 100 * time.Millisecond
	steady := int(long/every) * chunk
	w := &world{tuned: true, seen: newConfirmed(steady + burst)}
	var took time.Duration
	err = inWorld(ctx, k, w, func(ctx context.Context, s system) error {
		if hold {
			tx, err := w.holdOpen(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(context.WithoutCancel(ctx))
		}
		return relaying(ctx, s, long+patience, func(ctx context.Context) error {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for from := 0; from < steady; from += chunk {
				<-tick.C
				if err := s.Fill(ctx, from, from+chunk); err != nil {
					return fmt.Errorf("%s: %w", k.name, err)
				}
			}
			if err := w.seen.reach(ctx, steady); err != nil {
				return err
			}
			began := time.Now()
			if err := s.Fill(ctx, steady, steady+burst); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if err := w.seen.wait(ctx); err != nil {
				return err
			}
			took = time.Since(began)
			return nil
		})
	})
	return burst / took.Seconds(), err
}

// holdOpen begins a transaction with a snapshot and an xid.
func (w *world) holdOpen(ctx context.Context) (pgx.Tx, error) {
	tx, err := w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	return tx, effect(ctx, tx, "held open")
}
