package pgxstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// Programs with pgxstore and programs with sqlstore may share one outbox: each of them relays, unparks and counts the
// messages of the other. make test tests half of the cases, each in one direction.
func TestOutboxOfBothStores(t *testing.T) {
	t.Parallel() // beside the other suites
	onSQL := func(t *testing.T, db *outboxDB, o outboxtest.Options) *sqlstore.Store {
		pool := stdlib.OpenDBFromPool(db.pool)
		t.Cleanup(func() { _ = pool.Close() })
		store, err := sqlstore.New(sqlstore.Config{
			DB: pool, Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{
				KeepSent: o.KeepSent,
				Listen:   listenByPgx(db.dsn),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	onPgx := func(t *testing.T, db *outboxDB, o outboxtest.Options) *pgxstore.Store {
		return newStore(t, pgxstore.Config{Pool: db.pool, Outbox: pgxstore.OutboxConfig{KeepSent: o.KeepSent}})
	}
	sent := func(db *outboxDB) func(t *testing.T) []string {
		return func(t *testing.T) []string { return db.strings(t, `SELECT id FROM outbox_sent ORDER BY sent_at, seq`) }
	}
	age := func(db *outboxDB) func(ctx context.Context, name string, d time.Duration) error {
		return func(ctx context.Context, name string, d time.Duration) error { return age(ctx, db.pool, name, d) }
	}
	const wakes = "a commit wakes the sessions"
	sideBySide := func(t *testing.T, c func(*testing.T)) {
		t.Parallel()
		c(t)
	}
	t.Run("sqlstore writes, pgxstore relays", func(t *testing.T) {
		t.Parallel()
		outboxtest.TestStore(t, outboxtest.Harness[*sql.Tx]{
			Run:    sideBySide,
			Select: func(name string) bool { return name == wakes || matrix.Dealt(name, 0, 4) },
			New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*sql.Tx] {
				db := newOutboxDB(t, testdb.Postgres, 6)
				writer, relay := onSQL(t, db, o), onPgx(t, db, o)
				return outboxtest.Outbox[*sql.Tx]{
					Writer: writer, Queue: relay, Operations: relay.Outbox(), Retryable: writer.Retryable,
					LockOrderingKey: writer.LockOrderingKey,
					Sent:            sent(db), Age: age(db),
					SetBack: func(ctx context.Context, d time.Duration) error { return setBack(ctx, db.pool, d) },
					InTx: func(ctx context.Context, fn func(*sql.Tx) error) error {
						return writer.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error { return fn(tx) })
					},
				}
			},
		})
	})
	t.Run("pgxstore writes, sqlstore relays", func(t *testing.T) {
		t.Parallel()
		outboxtest.TestStore(t, outboxtest.Harness[pgx.Tx]{
			Features: outboxtest.Features{LateSequence: true},
			Run:      sideBySide,
			Select:   func(name string) bool { return name == wakes || matrix.Dealt(name, 2, 4) },
			New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[pgx.Tx] {
				db := newOutboxDB(t, testdb.Postgres, 6)
				writer, relay := onPgx(t, db, o), onSQL(t, db, o)
				return outboxtest.Outbox[pgx.Tx]{
					Writer: writer, Queue: relay, Operations: relay.Outbox(), Retryable: writer.Retryable,
					LockOrderingKey: writer.LockOrderingKey,
					Sent:            sent(db), Age: age(db),
					SetBack: func(ctx context.Context, d time.Duration) error { return setBack(ctx, db.pool, d) },
					InTx: func(ctx context.Context, fn func(pgx.Tx) error) error {
						return writer.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
					},
				}
			},
		})
	})
}

// listenByPgx is the example of sqlstore.OutboxConfig.Listen.
func listenByPgx(dsn string) func(ctx context.Context, statements []string, notified func()) error {
	return func(ctx context.Context, statements []string, notified func()) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return err
			}
		}
		for err == nil {
			notified()
			_, err = conn.WaitForNotification(ctx)
		}
		return err
	}
}
