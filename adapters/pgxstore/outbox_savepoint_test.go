package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
)

// session runs the steps of a handler in the cases below. It fails the test when a step fails.
type session struct {
	t  *testing.T
	db *outboxDB
}

func (s session) enqueue(tx pgx.Tx, ids ...string) {
	s.t.Helper()
	if err := s.db.store.Enqueue(s.t.Context(), tx, messages(ids...)...); err != nil {
		s.t.Fatalf("Enqueue(%v): %v", ids, err)
	}
}

func (s session) exec(tx pgx.Tx, sql string, args ...any) {
	s.t.Helper()
	if _, err := tx.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s session) begin(tx pgx.Tx) pgx.Tx {
	s.t.Helper()
	nested, err := tx.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return nested
}

func (s session) commit(tx pgx.Tx) {
	s.t.Helper()
	if err := tx.Commit(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s session) rollback(tx pgx.Tx) {
	s.t.Helper()
	if err := tx.Rollback(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// wrapped is a transaction wrapped by the application, for example for tracing.
type wrapped struct{ pgx.Tx }

// savepointCases are handlers that end in a commit. Whatever means a handler uses to set savepoints and to roll back to
// them, the outbox keeps the same messages that INSERTs of the handler's own would have left, in the order of Enqueue.
var savepointCases = []struct {
	name string
	do   func(s session, tx pgx.Tx)
	want []string
}{
	{"none", func(s session, tx pgx.Tx) { s.enqueue(tx, "a", "b"); s.enqueue(tx, "c") }, []string{"a", "b", "c"}},
	{"Begin, Commit", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		nested := s.begin(tx)
		s.enqueue(nested, "b")
		s.commit(nested)
		s.enqueue(tx, "c")
	}, []string{"a", "b", "c"}},
	{"Begin, Rollback", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		nested := s.begin(tx)
		s.enqueue(nested, "b")
		s.rollback(nested)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"Begin, Rollback, used through the outer one", func(s session, tx pgx.Tx) {
		nested := s.begin(tx)
		s.enqueue(tx, "a")
		s.rollback(nested)
		s.enqueue(tx, "b")
	}, []string{"b"}},
	{"Rollback after Commit", func(s session, tx pgx.Tx) {
		nested := s.begin(tx)
		s.enqueue(nested, "a")
		s.commit(nested)
		if err := nested.Rollback(s.t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
			s.t.Errorf("Rollback after Commit = %v", err)
		}
	}, []string{"a"}},
	{"three levels, the middle one rolled back", func(s session, tx pgx.Tx) {
		one := s.begin(tx)
		s.enqueue(one, "a")
		two := s.begin(one)
		s.enqueue(two, "b")
		three := s.begin(two)
		s.enqueue(three, "c")
		s.commit(three)
		s.enqueue(two, "d")
		s.rollback(two)
		s.enqueue(one, "e")
		s.commit(one)
		s.enqueue(tx, "f")
	}, []string{"a", "e", "f"}},
	{"three levels, the outer one rolled back", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		one := s.begin(tx)
		s.enqueue(one, "b")
		two := s.begin(one)
		s.enqueue(two, "c")
		s.commit(two)
		s.rollback(one)
	}, []string{"a"}},
	{"an error healed by Rollback", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		nested := s.begin(tx)
		s.enqueue(nested, "b")
		_, _ = nested.Exec(s.t.Context(), `SELECT 1/0`)
		s.rollback(nested)
	}, []string{"a"}},
	{"SAVEPOINT, ROLLBACK TO", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SAVEPOINT x`)
		s.enqueue(tx, "b")
		s.exec(tx, `ROLLBACK TO x`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"SAVEPOINT, RELEASE", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SAVEPOINT x`)
		s.enqueue(tx, "b")
		s.exec(tx, `RELEASE x`)
		s.enqueue(tx, "c")
	}, []string{"a", "b", "c"}},
	{"SAVEPOINT in SAVEPOINT, RELEASE, ROLLBACK TO", func(s session, tx pgx.Tx) {
		s.exec(tx, `savepoint x`)
		s.enqueue(tx, "a")
		s.exec(tx, `/* two */ SAVEPOINT y`)
		s.enqueue(tx, "b")
		s.exec(tx, `RELEASE SAVEPOINT y`)
		s.exec(tx, `ROLLBACK WORK TO SAVEPOINT x`)
		s.enqueue(tx, "c")
	}, []string{"c"}},
	{"an error healed by ROLLBACK TO", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SAVEPOINT x`)
		s.enqueue(tx, "b")
		_, _ = tx.Exec(s.t.Context(), `SELECT 1/0`)
		s.exec(tx, `ROLLBACK TO x`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"as queries", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		_ = tx.QueryRow(s.t.Context(), `SAVEPOINT x`).Scan()
		s.enqueue(tx, "b")
		rows, _ := tx.Query(s.t.Context(), `ROLLBACK TO x`)
		rows.Close()
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"in a batch", func(s session, tx pgx.Tx) {
		batch := func(statements ...string) {
			b := &pgx.Batch{}
			for _, sql := range statements {
				b.Queue(sql)
			}
			if err := tx.SendBatch(s.t.Context(), b).Close(); err != nil {
				s.t.Fatal(err)
			}
		}
		s.enqueue(tx, "a")
		batch(`SELECT 1`, `SAVEPOINT x`)
		s.enqueue(tx, "b")
		batch(`SELECT 1`, `ROLLBACK TO x`, `SAVEPOINT y`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"prepared", func(s session, tx pgx.Tx) {
		for name, sql := range map[string]string{"set it": `SAVEPOINT x`, "undo": `ROLLBACK TO x`} {
			if _, err := tx.Prepare(s.t.Context(), name, sql); err != nil {
				s.t.Fatal(err)
			}
		}
		s.enqueue(tx, "a")
		s.exec(tx, `set it`)
		s.enqueue(tx, "b")
		s.exec(tx, `undo`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"prepared before", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `prepared_savepoint`)
		s.enqueue(tx, "b")
		s.exec(tx, `prepared_rollback`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"behind another statement", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SELECT 1; SAVEPOINT x`)
		s.enqueue(tx, "b")
		s.exec(tx, `SELECT 1; ROLLBACK TO x`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"behind another statement, by the simple protocol", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SELECT $1; SAVEPOINT x`, pgx.QueryExecModeSimpleProtocol, 1)
		s.enqueue(tx, "b")
		s.exec(tx, `SELECT $1; ROLLBACK TO x`, pgx.QueryExecModeSimpleProtocol, 1)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"made by a rewriter", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.exec(tx, `SELECT first`, rewriter(`SAVEPOINT x`))
		s.enqueue(tx, "b")
		s.exec(tx, `SELECT then`, rewriter(`ROLLBACK TO x`))
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"on the connection", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		conn := tx.Conn()
		_, _ = conn.Exec(s.t.Context(), `SAVEPOINT x`)
		s.enqueue(tx, "b")
		_, _ = conn.Exec(s.t.Context(), `ROLLBACK TO x`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"on the connection of rows", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		rows, err := tx.Query(s.t.Context(), `SELECT 1`)
		if err != nil {
			s.t.Fatal(err)
		}
		rows.Close()
		conn := rows.Conn()
		_, _ = conn.Exec(s.t.Context(), `SAVEPOINT x`)
		s.enqueue(tx, "b")
		_, _ = conn.Exec(s.t.Context(), `ROLLBACK TO x`)
		s.enqueue(tx, "c")
	}, []string{"a", "c"}},
	{"ROLLBACK TO what Begin has set", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		nested := s.begin(tx)
		s.enqueue(nested, "b")
		s.exec(nested, `ROLLBACK TO sp_1`)
		s.enqueue(nested, "c")
		s.commit(nested)
	}, []string{"a", "c"}},
	{"SAVEPOINT within Begin, and Rollback", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		nested := s.begin(tx)
		s.enqueue(nested, "b")
		s.exec(nested, `SAVEPOINT x`)
		s.enqueue(nested, "c")
		s.exec(nested, `RELEASE x`)
		s.rollback(nested)
		s.enqueue(tx, "d")
	}, []string{"a", "d"}},
	{"through a wrapper", func(s session, tx pgx.Tx) {
		s.enqueue(tx, "a")
		s.enqueue(wrapped{tx}, "b")
		s.enqueue(tx, "c")
		s.enqueue(wrapped{tx}, "d", "e")
	}, []string{"a", "b", "c", "d", "e"}},
	{"while rows are read", func(s session, tx pgx.Tx) {
		rows, err := tx.Query(s.t.Context(), `SELECT generate_series(1, 3)`)
		if err != nil {
			s.t.Fatal(err)
		}
		for n := 1; rows.Next(); n++ {
			s.enqueue(tx, fmt.Sprint(n))
		}
	}, []string{"1", "2", "3"}},
}

// rewriter replaces a statement with another one.
type rewriter string

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(r), nil, nil
}

func TestOutboxWriterAndSavepoints(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 2)
		cfg := db.pool.Config()
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			for name, sql := range map[string]string{
				"prepared_savepoint": `SAVEPOINT x`,
				"prepared_rollback":  `ROLLBACK TO x`,
			} {
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
		defer pool.Close()
		db.store = newStore(t, pgxstore.Config{Pool: pool})
		for _, tt := range savepointCases {
			t.Run(tt.name, func(t *testing.T) {
				db.exec(t, `TRUNCATE outbox_messages`)
				if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
					tt.do(session{t, db}, tx)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				db.want(t, tt.want...)
			})
		}
	})
}
