package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// newPreparedTest is a handlerTest whose pool prepares statements, by name, on each new connection. So the Store never
// sees their text.
func newPreparedTest(t *testing.T, statements map[string]string) *handlerTest {
	t.Helper()
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	cfg := h.db.pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		for name, sql := range statements {
			if _, err := conn.Prepare(ctx, name, sql); err != nil {
				return err
			}
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h.store = newStore(t, pgxstore.Config{Pool: pool})
	return h
}

// However a handler executes a prepared statement, or gets the connection, InTx notices that it has committed the
// claim.
func TestPreparedStatementEndsTheTransaction(t *testing.T) {
	batch := func(sql string, read func(pgx.BatchResults)) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(sql)
			results := tx.SendBatch(ctx, b)
			read(results)
			return results.Close()
		}
	}
	callback := func(set func(q *pgx.QueuedQuery)) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			set(b.Queue("bye"))
			return tx.SendBatch(ctx, b).Close()
		}
	}
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec":    func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, "bye")) },
		"EXECUTE": func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, "EXECUTE bye")) },
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "bye")
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return noRows(tx.QueryRow(ctx, "bye")) },
		"EXECUTE by QueryRow": func(ctx context.Context,
			tx pgx.Tx,
		) error {
			return noRows(tx.QueryRow(ctx, "EXECUTE bye"))
		},
		"a batch":               batch("bye", func(pgx.BatchResults) {}),
		"Exec of a batch":       batch("bye", func(r pgx.BatchResults) { _, _ = r.Exec() }),
		"QueryRow of a batch":   batch("bye", func(r pgx.BatchResults) { _ = noRows(r.QueryRow()) }),
		"a callback with rows":  callback(func(q *pgx.QueuedQuery) { q.Query(func(rows pgx.Rows) error { rows.Close(); return rows.Err() }) }),
		"a callback with a row": callback(func(q *pgx.QueuedQuery) { q.QueryRow(noRows) }),
		"the connection of rows": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT 1`)
			conn := rows.Conn()
			rows.Close()
			return errors.Join(err, second(conn.Exec(ctx, "bye")))
		},
		"the connection of rows in a callback": func(ctx context.Context, tx pgx.Tx) error {
			var conn *pgx.Conn
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`).Query(func(rows pgx.Rows) error { conn = rows.Conn(); return nil })
			return errors.Join(tx.SendBatch(ctx, b).Close(), second(conn.Exec(ctx, "bye")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPreparedTest(t, map[string]string{"bye": `COMMIT AND CHAIN`})
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(effect(ctx, tx, "committed"), do(ctx, tx), errors.New("and then the handler fails"))
			})
			if !errors.Is(err, dedup.ErrTxEnded) || errors.Is(err, dedup.ErrRolledBack) || len(h.effects()) != 1 {
				t.Errorf("InTx = %v after %q was committed", err, h.effects())
			}
		})
	}
}

func noRows(row pgx.Row) error {
	if err := row.Scan(); !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return nil
}

// A handler that rolls back to a savepoint of an earlier handler, by prepared statements, does not take back the work
// of that handler.
func TestPreparedStatementsSetSavepoints(t *testing.T) {
	for _, by := range []string{"", "EXECUTE "} {
		t.Run(by, func(t *testing.T) {
			h := newPreparedTest(t, map[string]string{"save": `SAVEPOINT mine`, "undo": `ROLLBACK TO mine`})
			err := h.batch(
				func(ctx context.Context, tx pgx.Tx) error {
					return errors.Join(second(tx.Exec(ctx, by+"save")), effect(ctx, tx, "first"))
				},
				func(ctx context.Context, tx pgx.Tx) error {
					return errors.Join(effect(ctx, tx, "second"), second(tx.Exec(ctx, by+"undo")))
				},
			)
			if err == nil {
				t.Errorf("InTx = nil, and the effects are %q", h.effects())
			}
		})
	}
}

// COMMIT is durable also if a prepared statement has turned synchronous_commit off.
func TestPreparedStatementsSetSynchronousCommit(t *testing.T) {
	for _, statement := range [][]any{
		{"set", "synchronous_commit", "off"},
		{"EXECUTE set('synchronous_commit', 'off')"},
		{"set_all", `{"value": "off", "reason": "a bulk load", "name": "synchronous_commit"}`},
	} {
		t.Run(statement[0].(string), func(t *testing.T) {
			h := newPreparedTest(t, map[string]string{
				"set":     `SELECT set_config($1, $2, true)`,
				"set_all": `SELECT set_config(s->>'name', s->>'value', true) FROM (SELECT $1::jsonb AS s) AS s`,
			})
			h.commitsDurably(func(ctx context.Context, tx pgx.Tx) error {
				return second(tx.Exec(ctx, statement[0].(string), statement[1:]...))
			})
		})
	}
}
