package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

type interleaveHandler = func(ctx context.Context, tx pgx.Tx) error

// interleaveLimit ends handlers that wait for each other forever.
const interleaveLimit = 30 * time.Second

// interleave claims a key for each handler and runs them in one transaction.
func (h *handlerTest) interleave(keys []string, handlers ...interleaveHandler) (failed int, err error) {
	h.Helper()
	h.interleaves++
	recs := make([]dedup.Record, len(handlers))
	for i := range recs {
		recs[i] = dedup.Record{
			Key:  dedup.Key{Consumer: "billing", ID: fmt.Sprint(h.interleaves, "-", i)},
			Time: time.Now(),
		}
	}
	if keys == nil {
		keys = make([]string, len(handlers))
	}
	ctx, cancel := context.WithTimeout(h.Context(), interleaveLimit)
	defer cancel()
	failed = -1
	err = h.store.InTx(ctx, recs, func(tx pgx.Tx, _ []dedup.Claim) (err error) {
		failed, err = h.store.Interleave(ctx, tx, keys, handlers)
		return err
	})
	return failed, err
}

// alike returns n handlers that do the same.
func alike(n int, do func(ctx context.Context, tx pgx.Tx, i int) error) []interleaveHandler {
	handlers := make([]interleaveHandler, n)
	for i := range handlers {
		handlers[i] = func(ctx context.Context, tx pgx.Tx) error { return do(ctx, tx, i) }
	}
	return handlers
}

func (h *handlerTest) effects() []string {
	h.Helper()
	return h.db.strings(h.T, `SELECT name FROM effects ORDER BY name`)
}

func TestInterleaveSendsTheStatementsOfAllHandlersTogether(t *testing.T) {
	trips := &roundTrips{}
	cfg, err := pgxpool.ParseConfig(testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, trips
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	makeTables(t, pool, `CREATE TABLE effects (name text NOT NULL)`)
	h := &handlerTest{T: t, store: newStore(t, pgxstore.Config{Pool: pool})}
	pgxstore.SetLingers(h.store, time.Minute) // so that a busy machine changes nothing
	for range 3 {                             // pgx prepares statements when it first sees them
		trips.take()
		_, err := h.interleave(nil, alike(20, func(ctx context.Context, tx pgx.Tx, i int) error {
			if err := effect(ctx, tx, fmt.Sprint(i)); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM effects WHERE name = $1`,
				fmt.Sprint(i)).Scan(&n); err != nil {
				return err
			}
			b := &pgx.Batch{}
			b.Queue(insertEffect, "one more")
			b.Queue(insertEffect, "and one more")
			return tx.SendBatch(ctx, b).Close()
		})...)
		if err != nil {
			t.Fatal(err)
		}
	}
	if sent := trips.take(); len(sent) != 5 { // BEGIN and claim, three pipelines, COMMIT
		t.Errorf("%d round trips for 20 handlers with 3 each:\n%s", len(sent), strings.Join(sent, "\n"))
	}
}

// Handlers that lock what they read before they write do not disturb each other, also beside handlers that lock
// nothing.
func TestInterleaveKeepsHandlersApartThatLock(t *testing.T) {
	const n = 12
	exec := func(sql string, args ...any) func(ctx context.Context, h *handlerTest, tx pgx.Tx) error {
		return func(ctx context.Context, _ *handlerTest, tx pgx.Tx) error { return second(tx.Exec(ctx, sql, args...)) }
	}
	for name, test := range map[string]struct {
		isolation pgx.TxIsoLevel
		params    string
		lock      func(ctx context.Context, h *handlerTest, tx pgx.Tx) error
	}{
		"FOR UPDATE":        {lock: exec(`SELECT FROM counter FOR UPDATE`)},
		"FOR NO KEY UPDATE": {lock: exec(`SELECT FROM counter FOR NO KEY UPDATE`)},
		"LOCK":              {lock: exec(`LOCK TABLE counter`)},
		"advisory":          {lock: exec(`SELECT pg_advisory_xact_lock($1)`, 1)},
		"session advisory":  {lock: exec(`SELECT pg_advisory_lock($1)`, 1)},
		"LockKeys": {lock: func(ctx context.Context, h *handlerTest, tx pgx.Tx) error {
			return h.store.LockKeys(ctx, tx, dedup.Key{Consumer: "c", ID: "k"})
		}},
		"LockOrderingKey": {lock: func(ctx context.Context, h *handlerTest, tx pgx.Tx) error {
			return h.store.LockOrderingKey(ctx, tx, "k")
		}},
		"Newer": {lock: func(ctx context.Context, h *handlerTest, tx pgx.Tx) error {
			return second(h.store.Newer(ctx, tx, "counter", 1))
		}},
		"savepoint": {lock: func(ctx context.Context, _ *handlerTest, tx pgx.Tx) error { return second(tx.Begin(ctx)) }},
		"in a batch": {lock: func(ctx context.Context, _ *handlerTest, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			b.Queue(`SELECT FROM counter FOR UPDATE`)
			return tx.SendBatch(ctx, b).Close()
		}},
		"a hidden lock":             {lock: exec(`SELECT 1`, rewriter(`LOCK TABLE counter`))},
		"REPEATABLE READ":           {isolation: pgx.RepeatableRead, lock: exec(`SELECT 1`)},
		"SERIALIZABLE":              {isolation: pgx.Serializable, lock: exec(`SELECT 1`)},
		"the simple protocol":       {params: "&default_query_exec_mode=simple_protocol", lock: exec(`SELECT 1`)},
		"strings in another syntax": {params: "&standard_conforming_strings=off", lock: exec(`SELECT 1`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDBAt(t, testdb.Schema(t, testdb.Postgres18(t))+test.params, 4)
			db.exec(t, `CREATE TABLE counter AS SELECT 0 AS n`)
			h := &handlerTest{T: t, db: db, store: newStore(t, pgxstore.Config{Pool: db.pool, Isolation: test.isolation})}
			pgxstore.SetStallsAfter(h.store, time.Minute)
			if _, err := h.interleave(nil, alike(2*n, func(ctx context.Context, tx pgx.Tx, i int) error {
				if i%2 == 1 {
					return effect(ctx, tx, "x")
				}
				if err := test.lock(ctx, h, tx); err != nil {
					return err
				}
				var read int
				if err := tx.QueryRow(ctx, `SELECT n FROM counter`).Scan(&read); err != nil {
					return err
				}
				runtime.Gosched()
				return second(tx.Exec(ctx, `UPDATE counter SET n = $1`, read+1))
			})...); err != nil {
				t.Fatal(err)
			}
			if got := db.strings(t, `SELECT n::text FROM counter`); got[0] != fmt.Sprint(n) {
				t.Errorf("%s updates of %d are left", got[0], n)
			}
		})
	}
}

// While a handler has the transaction for itself, a statement of another one waits until it has returned.
func TestInterleaveLetsNobodyComeBetween(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	h.db.exec(t, `CREATE TABLE counter AS SELECT 0 AS n`)
	locked := make(chan struct{})
	if _, err := h.interleave(nil,
		func(ctx context.Context, tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, `SELECT n FROM counter FOR UPDATE`).Scan(&n); err != nil {
				return err
			}
			close(locked)
			<-time.After(50 * time.Millisecond)
			return second(tx.Exec(ctx, `UPDATE counter SET n = $1`, n+1))
		},
		func(ctx context.Context, tx pgx.Tx) error {
			<-locked
			return second(tx.Exec(ctx, `UPDATE counter SET n = n + $1`, 1))
		},
	); err != nil {
		t.Fatal(err)
	}
	if got := h.db.strings(t, `SELECT n::text FROM counter`); got[0] != "2" {
		t.Errorf("%s updates of 2 are left", got[0])
	}
}

// Messages that have the same key are handled one after the other, and so are their outbox messages published. Outbox
// messages of all handlers are in the order of the handlers, whenever they were enqueued and whatever else the handlers
// do.
func TestInterleaveKeepsTheOrder(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	pgxstore.SetStallsAfter(h.store, time.Minute)
	const n = 24
	keys := make([]string, n)
	for i := range keys {
		keys[i] = []string{"a", "b", "c", ""}[i%4]
	}
	var want []string
	running := map[string]int{}
	busy := make(chan struct{}, 1) // a mutex
	for i := range n {
		want = append(want, fmt.Sprint("first ", i), fmt.Sprint("second ", i))
	}
	if _, err := h.interleave(keys, alike(n, func(ctx context.Context, tx pgx.Tx, i int) error {
		busy <- struct{}{}
		if running[keys[i]]++; keys[i] != "" && running[keys[i]] > 1 {
			t.Errorf("two messages of key %q are handled at once", keys[i])
		}
		<-busy
		enqueue := func(what string) error {
			return h.store.Enqueue(ctx, tx, outbox.Message{
				ID: fmt.Sprint(what, " ", i), Topic: "t", OrderingKey: "k",
				Payload: []byte("x"),
			})
		}
		if err := enqueue("first"); err != nil {
			return err
		}
		if err := second(tx.Exec(ctx, `INSERT INTO effects (name) VALUES ($1)`, fmt.Sprintf("%s %02d", keys[i],
			i))); err != nil {
			return err
		}
		if i%3 == 0 { // a savepoint writes what waits
			if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return effect(ctx, tx, "in a savepoint") }); err != nil {
				return err
			}
		}
		err := enqueue("second")
		busy <- struct{}{}
		running[keys[i]]--
		<-busy
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	h.db.want(t, want...)
	for _, key := range []string{"a", "b", "c"} {
		order := h.db.strings(t, `SELECT name FROM effects WHERE name LIKE $1 ORDER BY ctid`, key+" %")
		if !slices.IsSorted(order) || len(order) != n/4 {
			t.Errorf("handled in the order %q", order)
		}
	}
}

// The first failure ends everything. It is named, nothing is committed, and no handler waits any longer.
func TestInterleaveFails(t *testing.T) {
	errMine := errors.New("mine")
	for name, test := range map[string]struct {
		// of handler 2; the others wait for their statements, or for the transaction, again and again
		do    interleaveHandler
		named bool
		want  string
	}{
		"an error":    {func(context.Context, pgx.Tx) error { return errMine }, true, "mine"},
		"Goexit":      {func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, true, "Goexit"},
		"a statement": {func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `SELECT 1/$1::int`, 0)) }, true, "division by zero"},
		"swallowed":   {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `SELECT 1/$1::int`, 0); return nil }, true, "division by zero"},
		"syntax":      {func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `SELECT FROM WHERE`)) }, false, "syntax"},
		"an argument": {func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `SELECT $1::int`, struct{}{})) }, false, "encode"},
		"COMMIT": {
			func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `COMMIT`)) }, true,
			"COMMIT",
		},
		"tx.Commit": {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, true, "Commit"},
		"its ctx": {
			func(ctx context.Context, tx pgx.Tx) error { return slow(ctx, tx, `SELECT pg_sleep($1)`) },
			true, "deadline",
		},
		"rows left open": {
			func(ctx context.Context, tx pgx.Tx) error { return second(tx.Query(ctx, `SELECT 1`)) },
			true, "left rows",
		},
		"a row left open": {func(ctx context.Context, tx pgx.Tx) error {
			_ = tx.QueryRow(ctx, `SELECT 1`)
			return nil
		}, true, "left rows"},
		"a batch left open": {func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			_ = tx.SendBatch(ctx, b)
			return nil
		}, true, "left rows"},
		"a statement while rows are open": {func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, `SELECT 1`)
			defer rows.Close()
			_, _ = tx.Exec(ctx, `SELECT 1`)
			return nil
		}, true, "conn busy"},
		"currval": {func(ctx context.Context, tx pgx.Tx) error {
			_ = tx.QueryRow(ctx, `SELECT currval('s')`).Scan(new(int))
			return nil
		}, true, "currval"},
		"another's savepoint": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT left_set`)
			return nil
		}, true, "savepoint"},
		"the connection": {
			func(ctx context.Context, tx pgx.Tx) error { return tx.Conn().Close(ctx) }, true,
			"connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			failed, err := h.interleave(nil, alike(5, func(ctx context.Context, tx pgx.Tx, i int) error {
				if err := effect(ctx, tx, "effect"); err != nil {
					return err
				}
				switch i {
				case 0:
					return second(tx.Exec(ctx, `SAVEPOINT left_set`))
				case 2:
					return test.do(ctx, tx)
				}
				for ctx.Err() == nil { // a handler that ignores errors
					if i == 4 {
						_, _ = tx.Begin(ctx)
					}
					_ = effect(ctx, tx, "effect")
					if i == 1 { // otherwise no handler after it gets the transaction for itself
						return nil
					}
				}
				return nil
			})...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %v, want %q", err, test.want)
			}
			if named := failed == 2; named != test.named || !named && failed != -1 {
				t.Errorf("failed = %d", failed)
			}
			if left := h.effects(); len(left) > 0 {
				t.Errorf("committed: %q", left)
			}
		})
	}
}

// The transaction is verified after the last handler too. No statement follows that would fail because this handler has
// ended the transaction.
func TestInterleaveVerifiesTheLastTurn(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	failed, err := h.interleave(nil,
		func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, "effect") },
		func(ctx context.Context, tx pgx.Tx) error { return second(tx.Conn().Exec(ctx, `ROLLBACK`)) },
	)
	if failed != 1 || err == nil {
		t.Errorf("failed = %d: %v", failed, err)
	}
	if left := h.effects(); len(left) > 0 {
		t.Errorf("committed: %q", left)
	}
}

func slow(ctx context.Context, tx pgx.Tx, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err := tx.Exec(ctx, sql, 20)
	return err
}
