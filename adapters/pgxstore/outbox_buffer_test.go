package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

func (db *outboxDB) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return db.store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
}

// When the transaction ends in any way other than COMMIT, its messages are discarded and appear nowhere else.
func TestOutboxWriterWithoutCommit(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		do   func(ctx context.Context, tx pgx.Tx) error
		want error // nil: any
	}{
		{"an error", func(context.Context, pgx.Tx) error { return boom }, boom},
		{"a swallowed error", func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `SELECT 1/0`); return nil }, nil},
		{
			"COMMIT", func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `COMMIT`); return err },
			dedup.ErrTxEnded,
		},
		{
			"a swallowed COMMIT", func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `COMMIT`); return nil },
			dedup.ErrTxEnded,
		},
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
	var leaked pgx.Tx
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error { leaked = tx; return boom }); !errors.Is(err, boom) {
		t.Errorf("keeping the transaction: InTx = %v, want %v", err, boom)
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

// After a transaction was committed together with its messages, a handler that kept the transaction cannot use it:
// another transaction may have the connection by then.
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
