package pgxstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A handler commits without the Store's notice. Then its ctx ends, mostly during a statement, which closes the
// connection. Its claim is committed, so the error must say so: otherwise the other messages of its batch would not be
// run.
func TestHandlerCommitsAndIsCut(t *testing.T) {
	const sleep = `SELECT pg_sleep(60)`
	begin := func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx.Conn(), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		})
	}
	chain := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, `COMMIT AND CHAIN`)
		return err
	}
	hidden := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT 1`, rewriter(`COMMIT AND CHAIN`))
		return err
	}
	onTx := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sleep)
		return err
	}
	onConn := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, sleep)
		return err
	}
	type step = func(ctx context.Context, tx pgx.Tx) error
	nothing := func(context.Context, pgx.Tx) error { return nil }
	for _, tt := range []struct {
		name   string
		commit step
		then   step // with a ctx that ends during the step
		passes bool // the handler ignores the error of then
		ended  bool
	}{
		{"COMMIT AND CHAIN on the connection, and a statement", chain, onTx, false, true},
		{"COMMIT AND CHAIN on the connection, and a statement whose error is swallowed", chain, onTx, true, true},
		{"BeginFunc on the connection, and a statement on it", begin, onConn, false, true},
		{"COMMIT AND CHAIN by a rewriter, and a statement", hidden, onTx, false, true},
		{"COMMIT AND CHAIN on the connection, and rows left open", chain, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 10)`) //nolint:sqlclosecheck // the fault itself
			return err
		}, false, true},
		{
			"nothing is committed", func(_ context.Context, tx pgx.Tx) error { tx.Conn(); return nil }, onTx,
			false, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				if err := tt.commit(ctx, tx); err != nil {
					t.Errorf("commit: %v", err)
				}
				limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				err := tt.then(limited, tx)
				if tt.passes {
					return nil
				}
				return err
			})
			if err == nil || errors.Is(err, dedup.ErrTxEnded) != tt.ended || tt.ended && h.store.Retryable(err) {
				t.Errorf("InTx = %v; want ErrTxEnded: %v", err, tt.ended)
			}
			if !tt.ended { // handle checks that the claim is first again
				if err := h.handle("k", nothing); err != nil {
					t.Errorf("claimed again: %v", err)
				}
			}
		})
	}
}

// When the ctx of InTx ends after the handler has committed, InTx still finds out that it committed.
func TestHandlerCommitsAndCtxEnds(t *testing.T) {
	for name, verifies := range map[string]bool{"InTx proves": false, "VerifyTx proves": true} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "k"}, Time: time.Now()}
			err := h.store.InTx(ctx, []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
				if _, err := tx.Conn().Exec(ctx, `COMMIT AND CHAIN`); err != nil {
					t.Errorf("commit: %v", err)
				}
				cancel()
				if verifies {
					return h.store.VerifyTx(ctx, tx)
				}
				return nil
			})
			if !errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx = %v, want ErrTxEnded", err)
			}
		})
	}
}

// The check whether a handler has committed must not change the classification of the handler's error.
func TestLookBackKeepsTheBlame(t *testing.T) {
	refused := errors.New("the handler refuses it")
	for name, tt := range map[string]struct {
		do        func(ctx context.Context, tx pgx.Tx) error
		retryable bool
		want      error
	}{
		"rows left open": {func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 1000000)`)
			if err != nil {
				return err
			}
			rows.Next() // the rows stay open
			return refused
		}, false, refused},
		"a deadlock is swallowed": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING errcode = '40P01'; END $$`)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SET LOCAL work_mem = '8MB'; SET LOCAL enable_seqscan = on`); err != nil {
					return err
				}
				return tt.do(ctx, tx)
			})
			if err == nil || h.store.Retryable(err) != tt.retryable || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("InTx = %v; retryable wanted: %v", err, tt.retryable)
			}
			if err := h.handle("k", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Errorf("claimed again: %v", err)
			}
		})
	}
}
