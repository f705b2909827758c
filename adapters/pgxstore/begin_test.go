package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
)

// sentBatch is called before a batch with this statement is sent.
type sentBatch struct {
	roundTrips
	on func(sql string)
}

func (h *sentBatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		if h.on != nil {
			h.on(q.SQL)
		}
	}
	return ctx
}

// tracedStore is a Store on db whose batches h sees.
func tracedStore(t *testing.T, db *outboxDB, h *sentBatch) (*pgxstore.Store, *pgxpool.Pool) {
	t.Helper()
	cfg := db.pool.Config()
	cfg.MaxConns, cfg.ConnConfig.Tracer = 2, h
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return newStore(t, pgxstore.Config{Pool: pool}), pool
}

// What a handler does with the transaction of a duplicate, which has not begun yet, neither panics nor commits anything
// alone.
func TestATransactionThatHasNotBegun(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	ctx := t.Context()
	if err := db.store.InTx(ctx, ordinaryRecord("k"), doNothing); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(pgx.Tx) error{
		"Commit":   func(tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			err := db.store.InTx(ctx, ordinaryRecord("k"), func(tx pgx.Tx, _ []dedup.Claim) error {
				if err := end(tx); !errors.Is(err, dedup.ErrTxEnded) {
					t.Errorf("%v, want ErrTxEnded", err)
				}
				_, _ = tx.Conn().Exec(ctx, `INSERT INTO effects (name) VALUES ('alone')`)
				return nil
			})
			if !errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx: %v, want ErrTxEnded", err)
			}
		})
	}
	var kept pgx.Tx
	if err := db.store.InTx(ctx, ordinaryRecord("k"),
		func(tx pgx.Tx, _ []dedup.Claim) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	if returns(func() { kept.Conn() }) || returns(func() { kept.LargeObjects() }) {
		t.Error("a handler that has returned gets the connection")
	}
	var alone int
	if err := db.pool.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&alone); err != nil || alone != 0 {
		t.Errorf("%d effects were committed alone, %v", alone, err)
	}
}

// A tracer that panics while the transaction of a duplicate begins is no reason to hang. A handler that recovers has no
// transaction.
func TestAPanicWhileATransactionBegins(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	ctx := t.Context()
	if err := db.store.InTx(ctx, ordinaryRecord("k"), doNothing); err != nil {
		t.Fatal(err)
	}
	h := &sentBatch{}
	s, _ := tracedStore(t, db, h)
	for _, recovers := range []bool{false, true} {
		done := make(chan any, 1)
		go func() {
			defer func() {
				if r := recover(); r != nil {
					done <- r
				}
			}()
			done <- s.InTx(ctx, ordinaryRecord("k"), func(tx pgx.Tx, _ []dedup.Claim) error {
				h.on = func(string) { h.on = nil; panic("tracer") }
				if recovers {
					func() {
						defer func() { _ = recover() }()
						_ = effect(ctx, tx, "e")
					}()
					if err := effect(ctx, tx, "e"); err == nil {
						t.Error("a statement after the panic succeeds")
					}
					return nil
				}
				return effect(ctx, tx, "e")
			})
		}()
		select {
		case r := <-done:
			if err, ended := r.(error); r != "tracer" && !recovers || recovers && (!ended || err == nil ||
				!strings.Contains(err.Error(), "has not begun")) {
				t.Errorf("the handler recovers: %v; InTx: %v", recovers, r)
			}
		case <-time.After(time.Minute):
			t.Fatal("InTx hangs")
		}
		if err := s.InTx(ctx, ordinaryRecord(fmt.Sprint(recovers)), doNothing); err != nil {
			t.Error(err)
		}
	}
	var n int
	if err := db.pool.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d effects, %v", n, err)
	}
}

// A server or session that is read-only may be a former primary: it acknowledges nothing.
func TestNothingIsAcknowledgedReadOnly(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 1)
	ctx := t.Context()
	for _, redelivered := range [][]dedup.Record{redeliveredRecord("k"), append(redeliveredRecord("k"),
		redeliveredRecord("l")...)} {
		if err := db.store.InTx(ctx, append(ordinaryRecord("k"), ordinaryRecord("l")...), doNothing); err != nil {
			t.Fatal(err)
		}
		if _, err := db.pool.Exec(ctx, `SET default_transaction_read_only = on`); err != nil {
			t.Fatal(err)
		}
		if err := db.store.InTx(ctx, redelivered, doNothing); err == nil {
			t.Errorf("%d redelivered records are acknowledged", len(redelivered))
		}
	}
}

// A goroutine of the handler saves a result while another result is being written.
func TestAResultThatIsSavedDuringAWrite(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	ctx := t.Context()
	h := &sentBatch{}
	s, _ := tracedStore(t, db, h)
	a, b := ordinaryRecord("a")[0], ordinaryRecord("b")[0]
	err := s.InTx(ctx, []dedup.Record{a, b}, func(tx pgx.Tx, _ []dedup.Claim) error {
		if err := s.SaveResult(ctx, tx, a.Key, []byte("of a")); err != nil {
			return err
		}
		h.on = func(sql string) {
			if strings.Contains(sql, "WITH saved") {
				h.on = nil
				saved := make(chan error)
				go func() { saved <- s.SaveResult(ctx, tx, b.Key, []byte("of b")) }()
				if err := <-saved; err != nil {
					t.Error(err)
				}
			}
		}
		return effect(ctx, tx, "e")
	})
	for _, r := range []dedup.Record{a, b} {
		c, _, found := s.Lookup(ctx, r.Key)
		if err != nil || found != nil || string(c.Result) != "of "+r.Key.ID {
			t.Errorf("%v: result %q; InTx: %v, %v", r.Key, c.Result, err, found)
		}
	}
}

// A claim that is cancelled leaves the caller's own transaction with its lock_timeout.
func TestAClaimThatIsCancelledLeavesNoShortWait(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	if err := db.store.InTx(t.Context(), ordinaryRecord("k"), doNothing); err != nil {
		t.Fatal(err)
	}
	h := &sentBatch{}
	s, pool := tracedStore(t, db, h)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		before, err := lockWait(t.Context(), tx)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(driver.WithClaimWait(t.Context(), 50*time.Millisecond))
		defer cancel()
		h.on = func(sql string) {
			if strings.HasPrefix(sql, "SELECT key, fingerprint") {
				cancel()
			}
		}
		if _, err := s.Claim(ctx, tx, ordinaryRecord("k")); err == nil {
			t.Error("the claim was not cancelled")
		}
		after, err := lockWait(t.Context(), tx)
		if err == nil && after != before {
			t.Errorf("lock_timeout is %q, was %q", after, before)
		}
		return nil // the connection may be closed
	})
	t.Log(err)
}
