package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

type handler = func(ctx context.Context, tx pgx.Tx) error

// batch claims a key for each handler and runs them in one transaction, as a Consumer does.
func (h *handlerTest) batch(handlers ...handler) error {
	var recs []dedup.Record
	for i := range handlers {
		recs = append(recs, dedup.Record{Key: dedup.Key{Consumer: "billing", ID: fmt.Sprint(i)}, Time: time.Now()})
	}
	return h.store.InTx(h.Context(), recs, func(tx pgx.Tx, _ []dedup.Claim) error {
		for i, do := range handlers {
			if err := do(h.Context(), tx); err != nil {
				return fmt.Errorf("handler %d: %w", i, err)
			}
			if i+1 < len(handlers) {
				if err := h.store.VerifyTx(h.Context(), tx); err != nil {
					return fmt.Errorf("VerifyTx after handler %d: %w", i, err)
				}
			}
		}
		return nil
	})
}

// sends returns a handler that sends statements, each by a call of its own, and ignores their errors.
func sends(statements ...string) handler {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range statements {
			_, _ = tx.Exec(ctx, sql)
		}
		return nil
	}
}

func writes(name string) handler {
	return func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, name) }
}

// A handler that rolls back to a savepoint of an earlier handler, or releases it, fails, as it would in a transaction
// of its own. Otherwise the effects of the handlers between them would be lost, and their claims would be committed.
func TestAHandlerDoesNotReachTheSavepointsOfAnother(t *testing.T) {
	for name, tt := range map[string]struct{ leaves, reaches handler }{
		"rolls back":         {sends(`SAVEPOINT work`), sends(`ROLLBACK TO work`)},
		"releases":           {sends(`SAVEPOINT work`), sends(`RELEASE work`)},
		"several statements": {sends(`SELECT 1; SAVEPOINT work`), sends(`SELECT 1; ROLLBACK TO work`)},
		"a savepoint of Begin": {
			func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
			sends(`ROLLBACK TO sp_1`),
		},
		"after its own savepoint":  {sends(`SAVEPOINT work`), sends(`SAVEPOINT mine`, `ROLLBACK TO work`)},
		"after a failed statement": {sends(`SAVEPOINT work`), sends(`SELECT 1/0`, `ROLLBACK TO work`)},
		"within a Begin left open": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Begin(ctx)
			return errors.Join(err, sends(`SAVEPOINT work`)(ctx, tx))
		}, sends(`ROLLBACK TO work`)},
		"on the connection":          {onConn(`SAVEPOINT work`), onConn(`ROLLBACK TO work`)},
		"on the connection, of rows": {onConnOfRows(`SAVEPOINT work`), onConn(`ROLLBACK TO work`)},
		"in a batch": {func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SAVEPOINT work`)
			return tx.SendBatch(ctx, b).Close()
		}, sends(`ROLLBACK TO work`)},
	} {
		for _, last := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", last ", last), func(t *testing.T) {
				h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
				handlers := []handler{tt.leaves, writes("between"), tt.reaches}
				if !last {
					handlers = append(handlers, writes("after"))
				}
				err := h.batch(handlers...)
				if err == nil || h.store.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) {
					t.Errorf("InTx = %v, want the error of the handler that reached for the savepoint", err)
				}
				t.Log(err)
			})
		}
	}
}

func onConn(sql string) handler {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Conn().Exec(ctx, sql)
		return nil
	}
}

func onConnOfRows(sql string) handler {
	return func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT 1`)
		if err != nil {
			return err
		}
		conn := rows.Conn()
		rows.Close()
		_, err = conn.Exec(ctx, sql)
		return errors.Join(err, rows.Err())
	}
}

// Handlers of a batch may use savepoints of their own under the same names, and leave them set. Outgoing messages that
// are enqueued before a rollback to a savepoint are kept.
func TestHandlersOfABatchUseSavepoints(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	ctx := t.Context()
	enqueue := func(tx pgx.Tx, id string) error {
		return h.store.Enqueue(ctx, tx, outbox.Message{ID: id, Topic: "events", Payload: []byte("x")})
	}
	each := func(name string, do func(tx pgx.Tx) error) handler {
		return func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(writes(name)(ctx, tx), enqueue(tx, name), do(tx))
		}
	}
	text := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SAVEPOINT work`)
		err = errors.Join(err, writes("undone")(ctx, tx), enqueue(tx, "undone"))
		_, undo := tx.Exec(ctx, `ROLLBACK TO work`)
		return errors.Join(err, undo)
	}
	nested := func(end func(tx pgx.Tx) error) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			return errors.Join(err, text(inner), end(inner))
		}
	}
	var names []string
	var handlers []handler
	for _, do := range []func(tx pgx.Tx) error{
		text, text,
		nested(func(tx pgx.Tx) error { return tx.Commit(ctx) }),
		nested(func(tx pgx.Tx) error { return tx.Rollback(ctx) }),
		nested(func(pgx.Tx) error { return nil }),
		func(tx pgx.Tx) error { return onConn(`SAVEPOINT work`)(ctx, tx) },
		nested(func(tx pgx.Tx) error { return tx.Rollback(ctx) }),
		text,
	} {
		name := fmt.Sprint("h", len(names))
		names = append(names, name)
		handlers = append(handlers, each(name, do))
	}
	if err := h.batch(handlers...); err != nil {
		t.Fatal(err)
	}
	h.db.want(t, names...)
	if got := h.db.strings(t, `SELECT name FROM effects ORDER BY name`); !slices.Equal(got, names) {
		t.Errorf("effects %v, want %v", got, names)
	}
}

// Separating handlers costs a round trip for each handler that sends savepoints as text, one more for the first of
// them, and nothing for others, nor for those that call Begin.
func TestSeparatingHandlersCostsRoundTripsOnlyForSavepoints(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return countingConn{conn, &sent}, err
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	makeTables(t, pool, ``)
	h := &handlerTest{T: t, store: newStore(t, pgxstore.Config{Pool: pool})}
	nested := func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return nil })
	}
	for name, tt := range map[string]struct {
		do   handler
		want int64 // for five handlers, without BEGIN, the claim and COMMIT
	}{
		"none":        {func(context.Context, pgx.Tx) error { return nil }, 0},
		"Begin":       {nested, 2 * 5},
		"as text":     {sends(`SAVEPOINT a`, `RELEASE a`), 2*5 + 1 + 4},
		"on the conn": {onConn(`SELECT 1`), 5 + 1 + 5},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handlerTest{T: t, store: h.store}
			var got int64
			for range 2 { // statements are prepared the first time
				if _, err := pool.Exec(t.Context(), testdb.Unguarded(`DELETE FROM processed_messages`)); err != nil {
					t.Fatal(err)
				}
				began := sent.Load()
				if err := h.batch(tt.do, tt.do, tt.do, tt.do, tt.do); err != nil {
					t.Fatal(err)
				}
				got = sent.Load() - began - 2
			}
			if got != tt.want {
				t.Errorf("%d round trips, want %d", got, tt.want)
			}
		})
	}
}

type countingConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}
