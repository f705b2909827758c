package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

func (db *outboxDB) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return db.store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
}

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

// savepointCases are handlers that end in a commit. Whatever means a handler uses to set savepoints and to roll back to them,
// the outbox keeps the same messages that INSERTs of the handler's own would have left, in the order of Enqueue.
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
			for name, sql := range map[string]string{"prepared_savepoint": `SAVEPOINT x`, "prepared_rollback": `ROLLBACK TO x`} {
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

// When the transaction ends in any way other than COMMIT, its messages are discarded and appear nowhere else.
func TestOutboxWriterWithoutCommit(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	boom := errors.New("boom")
	var leaked pgx.Tx
	for _, tt := range []struct {
		name string
		do   func(ctx context.Context, tx pgx.Tx) error
		want error // nil: any
	}{
		{"an error", func(context.Context, pgx.Tx) error { return boom }, boom},
		{"a swallowed error", func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `SELECT 1/0`); return nil }, nil},
		{"COMMIT", func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `COMMIT`); return err }, dedup.ErrTxEnded},
		{"a swallowed COMMIT", func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `COMMIT`); return nil }, dedup.ErrTxEnded},
		{"ROLLBACK behind another statement", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1; ROLLBACK`)
			return err
		}, dedup.ErrTxEnded},
		{"ROLLBACK and BEGIN behind another statement", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1; ROLLBACK; BEGIN`)
			return err
		}, dedup.ErrTxEnded},
		{"ROLLBACK on the connection", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, `ROLLBACK`)
			return err
		}, dedup.ErrTxEnded},
		{"Enqueue after it", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Conn().Exec(ctx, `ROLLBACK`)
			if err := db.store.Enqueue(ctx, tx, message("late")); !errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("Enqueue after ROLLBACK = %v", err)
			}
			return nil
		}, dedup.ErrTxEnded},
		{"Enqueue after a statement failed", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			err := db.store.Enqueue(ctx, tx, message("late"))
			if err == nil || db.store.Retryable(err) || !strings.Contains(err.Error(), "22012") {
				t.Errorf("Enqueue in an aborted transaction = %v (retryable %v)", err, db.store.Retryable(err))
			}
			return nil
		}, nil},
		{"Enqueue to a savepoint that is gone", func(ctx context.Context, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := nested.Rollback(ctx); err != nil {
				return err
			}
			return db.store.Enqueue(ctx, nested, message("late"))
		}, pgx.ErrTxClosed},
		{"Tx.Conn while rows are open", func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 3)`)
			if err != nil {
				return err
			}
			defer rows.Close()
			_ = tx.Conn()
			return nil
		}, nil},
		{"a bad message after good ones", func(ctx context.Context, tx pgx.Tx) error {
			return db.store.Enqueue(ctx, tx, message("good"), outbox.Message{ID: "bad"})
		}, outbox.ErrBadMessage},
		{"a message without ID", func(ctx context.Context, tx pgx.Tx) error {
			return db.store.Enqueue(ctx, tx, outbox.Message{Topic: "events"})
		}, outbox.ErrNoID},
		{"a time that no database has", func(ctx context.Context, tx pgx.Tx) error {
			return db.store.Enqueue(ctx, tx, outbox.Message{ID: "never", Topic: "events", NotBefore: time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)})
		}, outbox.ErrBadMessage},
		{"the end of ctx", func(ctx context.Context, tx pgx.Tx) error { ctx.Value(cancelKey{}).(context.CancelFunc)(); return nil }, context.Canceled},
		{"keeping the transaction", func(_ context.Context, tx pgx.Tx) error { leaked = tx; return boom }, boom},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ctx = context.WithValue(ctx, cancelKey{}, cancel)
			recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: tt.name}, Time: time.Now()}}
			err := db.store.InTx(ctx, recs, func(tx pgx.Tx, _ []dedup.Claim) error {
				if _, err := tx.Exec(ctx, `INSERT INTO effects VALUES ('undone')`); err != nil {
					return err
				}
				if err := db.store.Enqueue(ctx, tx, message("undone")); err != nil {
					return err
				}
				return tt.do(ctx, tx)
			})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || db.store.Retryable(err) {
				t.Errorf("InTx = %v (retryable %v), want %v", err, db.store.Retryable(err), tt.want)
			}
			db.want(t)
		})
	}
	if err := db.store.Enqueue(t.Context(), leaked, message("leaked")); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("Enqueue after the handler has returned = %v, want ErrTxClosed", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = db.inTx(t.Context(), func(tx pgx.Tx) error {
			session{t, db}.enqueue(tx, "undone")
			panic("boom")
		})
	}()
	db.want(t)
	if n := db.strings(t, `SELECT count(*)::text FROM effects`); n[0] != "0" {
		t.Errorf("%s effects, want none", n[0])
	}
}

type cancelKey struct{}

// After a transaction was committed together with its messages, a handler that kept the transaction cannot use it: another
// transaction may have the connection by then.
func TestOutboxWriterClosesTheTransaction(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 1)
	var leaked pgx.Tx
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		leaked = tx
		session{t, db}.enqueue(tx, "a")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	err := db.inTx(t.Context(), func(pgx.Tx) error {
		for name, err := range map[string]error{
			"Enqueue": db.store.Enqueue(t.Context(), leaked, message("b")),
			"Exec":    second(leaked.Exec(t.Context(), `INSERT INTO effects VALUES ('foreign')`)),
			"Begin":   second(leaked.Begin(t.Context())),
			"Batch":   leaked.SendBatch(t.Context(), &pgx.Batch{}).Close(),
		} {
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s after the commit = %v, want ErrTxClosed", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	db.want(t, "a")
	if n := db.strings(t, `SELECT name FROM effects`); len(n) > 0 {
		t.Errorf("effects in another transaction: %v", n)
	}
	if n := db.pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want 1: a commit with messages must not cost the connection", n)
	}
}

func second[T any](_ T, err error) error { return err }

// roundTrips counts the round trips of pgx: each query, batch and preparation is one.
type roundTrips struct {
	mu   sync.Mutex
	sent []string
}

func (r *roundTrips) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, what)
}

func (r *roundTrips) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

var schemaName = regexp.MustCompile(`"[^"]+"\.`)

// brief returns the first words of a statement, without the schema's name.
func brief(sql string) string {
	sql = schemaName.ReplaceAllString(sql, "")
	sql = strings.ToLower(strings.Join(strings.Fields(sql), " "))
	if words := strings.Fields(sql); len(words) > 3 {
		sql = strings.Join(words[:3], " ")
	}
	return sql
}

// isWakeUp reports whether the statement is the NOTIFY, which a goroutine sends some time after a commit.
func isWakeUp(sql string) bool { return strings.Contains(sql, "pg_notify") }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !isWakeUp(d.SQL) {
		r.add(brief(d.SQL))
	}
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range d.Batch.QueuedQueries {
		all = append(all, brief(q.SQL))
	}
	r.add(strings.Join(all, " + "))
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (r *roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	if !isWakeUp(d.SQL) {
		r.add("prepare " + brief(d.SQL))
	}
	return ctx
}
func (r *roundTrips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// traced returns a Store on one connection whose round trips are counted.
func (db *outboxDB) traced(t *testing.T) (*pgxstore.Store, *roundTrips) {
	trips := &roundTrips{}
	cfg := db.pool.Config()
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, trips
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return newStore(t, pgxstore.Config{Pool: pool}), trips
}

// The outbox adds no round trip: PERFORMANCE.md 5.
func TestOutboxWriterRoundTrips(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	handle := func(id string, msgs ...outbox.Message) []string {
		recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}}
		err := store.InTx(t.Context(), recs, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := store.Enqueue(t.Context(), tx, msgs...); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO effects VALUES ($1)`, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return trips.take()
	}
	for _, tt := range []struct {
		name string
		msgs []outbox.Message
		want string
	}{
		{"none", nil, `commit`},
		{"one", messages("a"), `insert into outbox_messages + commit`},
		{"some", messages("b", "c", "d"), `insert into outbox_messages + commit`},
		{"later", []outbox.Message{message("e"), {ID: "f", Topic: "events", NotBefore: time.Now().Add(time.Hour)}}, `with m as + commit`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			handle("first "+tt.name, tt.msgs...) // the first messages prepare statements, register, and count the shards
			want := []string{`begin isolation level + insert into processed_messages`, `insert into effects`, tt.want}
			if diff := cmp.Diff(want, handle("then "+tt.name, tt.msgs...)); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// One statement writes all messages that the handlers of a batch enqueue.
func TestOutboxWriterInProcessBatch(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	c := newConsumer(t, store, consumer.Config[pgx.Tx]{
		Name: "billing",
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return store.Enqueue(ctx, tx, outbox.Message{Topic: "charged", Key: "k", Payload: m.Payload})
		},
	})
	batch := func(prefix string) (insertions int) {
		msgs := make([]*consumer.Message, 20)
		for i := range msgs {
			msgs[i] = &consumer.Message{ID: fmt.Sprintf("%s-%02d", prefix, i), Payload: fmt.Appendf(nil, "%s-%02d", prefix, i), Time: time.Now(), Attempt: 1}
		}
		for _, err := range c.ProcessBatch(t.Context(), msgs) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, trip := range trips.take() {
			insertions += strings.Count(trip, "insert into outbox_messages")
		}
		return insertions
	}
	batch("a")
	if n := batch("b"); n != 1 {
		t.Errorf("%d statements for the messages of a batch, want 1", n)
	}
	var want []string
	for _, prefix := range []string{"a", "b"} {
		for i := range 20 {
			want = append(want, fmt.Sprintf("%s-%02d", prefix, i))
		}
	}
	if diff := cmp.Diff(want, db.strings(t, `SELECT convert_from(payload, 'UTF8') FROM outbox_messages ORDER BY seq`)); diff != "" {
		t.Errorf("messages in the order of their numbers (-want +got):\n%s", diff)
	}
}
