package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func TestOutboxStore(t *testing.T) {
	t.Parallel() // beside the other suites
	for i, version := range []struct {
		name   string
		server func(testing.TB) string
	}{{"postgres15", testdb.Postgres}, {"postgres18", testdb.Postgres18}} {
		t.Run(version.name, func(t *testing.T) {
			t.Parallel()
			// sqlstore runs it on the other version
			selected := func(name string) bool { return matrix.Dealt(name, i, 2) }
			testOutbox(t, selected, func(t *testing.T) string { return testdb.Reused(t, version.server(t), outboxTables) })
		})
	}
}

func testOutbox(t *testing.T, selected func(name string) bool, newDSN func(t *testing.T) (dsn string)) {
	outboxtest.TestStore(t, outboxtest.Harness[pgx.Tx]{
		Features: outboxtest.Features{LateSequence: true},
		Select:   selected,
		Run: func(t *testing.T, c func(*testing.T)) {
			t.Parallel()
			c(t)
		},
		New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[pgx.Tx] {
			dsn := newDSN(t)
			db := outboxDBOf(t, dsn, keptPool(t, dsn, 6))
			store := newStore(t, pgxstore.Config{Pool: db.pool, Outbox: pgxstore.OutboxConfig{KeepSent: o.KeepSent}})
			return outboxtest.Outbox[pgx.Tx]{
				Writer: store, Queue: store, Operations: store.Outbox(),
				InTx: func(ctx context.Context, fn func(tx pgx.Tx) error) error {
					return store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
				},
				Retryable:       store.Retryable,
				LockOrderingKey: store.LockOrderingKey,
				Sent: func(t *testing.T) []string {
					return db.strings(t, `SELECT id FROM outbox_sent ORDER BY sent_at, seq`)
				},
				Age: func(ctx context.Context, name string,
					d time.Duration,
				) error {
					return age(ctx, db.pool, name, d)
				},
				SetBack: func(ctx context.Context, d time.Duration) error { return setBack(ctx, db.pool, d) },
			}
		},
	})
}

// age shortens the holds of the relays of that name.
func age(ctx context.Context, pool *pgxpool.Pool, name string, d time.Duration) error {
	_, err := pool.Exec(ctx, `UPDATE txonce_relays SET until = until - $2::interval, set_at = set_at - $2::interval WHERE name = $1`, name, d)
	return err
}

// setBack makes all holds and retries look as if the clock had been set back by d.
func setBack(ctx context.Context, pool *pgxpool.Pool, d time.Duration) error {
	for _, query := range []string{
		`UPDATE txonce_relays SET until = until + $1::interval, set_at = set_at + $1::interval`,
		`UPDATE outbox_held SET until = until + $1::interval, set_at = set_at + $1::interval`,
		`UPDATE outbox_messages SET retry_at = retry_at + $1::interval, failed_at = failed_at + $1::interval WHERE retry_at IS NOT NULL`,
	} {
		if _, err := pool.Exec(ctx, query, d); err != nil {
			return err
		}
	}
	return nil
}
