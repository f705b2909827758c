package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func TestOutboxSQLite(t *testing.T) {
	t.Parallel() // together with the suites of the other databases
	outboxtest.TestStore(t, outboxtest.Harness[*sql.Tx]{
		New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*sql.Tx] {
			d := openSQLite(t)
			// No case simulates power loss, and with synchronous on each commit would wait for the disk.
			return outboxOf(newNode(t, openDB(t, "sqlite", d.dsn+"&_pragma=synchronous(off)"), sqlstore.Config{
				Dialect: sqlstore.SQLite, Outbox: sqlstore.OutboxConfig{KeepSent: o.KeepSent},
			}))
		},
		Features: outboxtest.Features{OneWriter: true},
		TTL:      3 * time.Second, // this SQLite is compiled to Go, and the race detector slows it down
		Run:      sideBySide,
	})
}

func TestOutboxPostgres(t *testing.T) {
	t.Parallel()
	for i, version := range []struct {
		name   string
		server func(testing.TB) string
	}{{"18", testdb.Postgres18}, {"15", testdb.Postgres}} {
		t.Run(version.name, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestStore(t, outboxtest.Harness[*sql.Tx]{
				// pgxstore runs it on the other version
				Select: func(name string) bool { return matrix.Dealt(name, i, 2) },
				New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*sql.Tx] {
					dsn := testdb.Reused(t, version.server(t), suiteTables)
					return outboxOf(newNode(t, keptDB(t, "pgx", dsn), sqlstore.Config{
						Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{KeepSent: o.KeepSent},
					}))
				},
				TTL: time.Second, // Renew waits for a disk
				Run: sideBySide,
			})
		})
	}
}

func TestOutboxMySQL(t *testing.T) {
	t.Parallel()
	outboxtest.TestStore(t, outboxtest.Harness[*sql.Tx]{
		New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*sql.Tx] {
			return outboxOf(newNode(t, keptDB(t, "mysql", testdb.ReusedMySQL(t, mysqlSuiteTables)), sqlstore.Config{
				Dialect: sqlstore.MySQL, Outbox: sqlstore.OutboxConfig{KeepSent: o.KeepSent},
			}))
		},
		TTL: 3 * time.Second, // each Renew waits for a disk that all tests share
		Run: sideBySide,
	})
}

// sideBySide runs a case in parallel with others.
func sideBySide(t *testing.T, c func(*testing.T)) {
	t.Parallel()
	c(t)
}

func outboxOf(n *node) outboxtest.Outbox[*sql.Tx] {
	return outboxtest.Outbox[*sql.Tx]{
		Writer: n, Queue: n, Operations: n.Outbox(),
		InTx: func(ctx context.Context, fn func(*sql.Tx) error) error {
			return n.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error { return fn(tx) })
		},
		Retryable:       n.Retryable,
		LockOrderingKey: n.LockOrderingKey,
		Sent:            func(t *testing.T) []string { return stringsOf(t, n.db, `SELECT id FROM outbox_sent ORDER BY seq`) },
		Age: func(ctx context.Context, name string, d time.Duration) error {
			return inTx(ctx, n.db, nil, func(tx *sql.Tx) error {
				// on SQLite BEGIN takes the write lock if the DSN sets that
				query := `UPDATE txonce_relays SET until = until - ? WHERE name = ?`
				if n.dialect == sqlstore.Postgres {
					query = `UPDATE txonce_relays SET until = until - $1 * interval '1 microsecond' WHERE name = $2`
				}
				_, err := tx.ExecContext(ctx, query, d.Microseconds(), name)
				return err
			})
		},
		SetBack: func(ctx context.Context, d time.Duration) error {
			by := fmt.Sprint(d.Microseconds())
			if n.dialect == sqlstore.Postgres {
				by += ` * interval '1 microsecond'`
			}
			return inTx(ctx, n.db, nil, func(tx *sql.Tx) error {
				for _, query := range []string{
					`UPDATE txonce_relays SET until = until + ` + by + `, set_at = set_at + ` + by,
					`UPDATE outbox_held SET until = until + ` + by + `, set_at = set_at + ` + by,
					`UPDATE outbox_messages SET retry_at = retry_at + ` + by + `, failed_at = failed_at + ` + by +
						` WHERE retry_at IS NOT NULL`,
				} {
					if _, err := tx.ExecContext(ctx, query); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
