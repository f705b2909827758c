package main

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
)

// guard measures how fast sweeps delete expired keys with the trigger that refuses foreign deletions, and without it.
// Nothing else runs, and the sweep does not rest.
func (b *bench) guard(ctx context.Context) error {
	expired := 400_000 / b.size.backlog
	b.progress("guard")
	return b.server.inWorld(ctx, 2, false, func(ctx context.Context, w *world) error {
		sweep := func(trigger string) func(ctx context.Context) (float64, error) {
			return func(ctx context.Context) (float64, error) {
				for _, q := range []string{
					`ALTER TABLE processed_messages DISABLE TRIGGER txonce_guard`, `TRUNCATE processed_messages`,
					`ALTER TABLE processed_messages ` + trigger + ` TRIGGER txonce_guard`,
				} {
					if _, err := w.pool.Exec(ctx, q); err != nil {
						return 0, err
					}
				}
				if _, err := w.pool.Exec(ctx, `INSERT INTO processed_messages (key, expires_at, fingerprint, consumer, id)
	SELECT gen_random_uuid(), now() - '1 hour'::interval, i, 'billing', 'order-' || lpad(i::text, 14, '0') FROM generate_series(1, $1::bigint) AS i`, expired); err != nil {
					return 0, err
				}
				if _, err := w.pool.Exec(ctx, `VACUUM (ANALYZE) processed_messages`); err != nil {
					return 0, err
				}
				if _, err := w.pool.Exec(ctx, `CHECKPOINT`); err != nil {
					return 0, err
				}
				began, keys := time.Now(), 0
				for {
					swept, err := w.store.Purge(ctx, dedup.Sweep{Owner: "bench", Lease: time.Minute, Limit: 5000})
					if err != nil {
						return 0, err
					}
					if keys += swept.Keys; swept.Done {
						break
					}
				}
				if keys != expired {
					return 0, errors.New("the sweep did not delete all expired keys")
				}
				return float64(keys) / time.Since(began).Seconds(), nil
			}
		}
		ways := []way{
			{"without the trigger", "", sweep("DISABLE")},
			{"with the trigger", "without the trigger", sweep("ENABLE")},
		}
		figures, err := rounds(ctx, 2*b.size.rounds, true, ways)
		if err != nil {
			return err
		}
		b.report.table("guard", "").add("keys swept/s", ways, figures)
		return nil
	})
}
