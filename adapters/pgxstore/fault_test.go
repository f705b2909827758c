package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Each error that a handler's statements may meet is classified as the fault of the message or of the database. The
// suite tests each code.
func TestBlame(t *testing.T) {
	exec := func(sql string) func(ctx context.Context, tx pgx.Tx, h *handlerTest) error {
		return func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	raise := func(code string) string {
		return fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '%s'; END $$`, code)
	}
	elsewhere := func(code string) func(ctx context.Context, tx pgx.Tx, h *handlerTest) error {
		return func(ctx context.Context, _ pgx.Tx, h *handlerTest) error {
			_, err := h.db.pool.Exec(ctx, raise(code))
			return fmt.Errorf("call the other database: %w", err)
		}
	}
	for _, tt := range []struct {
		name                 string
		do                   func(ctx context.Context, tx pgx.Tx, h *handlerTest) error
		retryable, ambiguous bool
	}{
		{"a missing column", exec(`SELECT missing FROM effects`), true, true},
		{"a statement that was cancelled", exec(`DO $$ BEGIN SET LOCAL statement_timeout = 1; END $$; SELECT pg_sleep(60)`), true, true},
		{"a statement that no transaction block allows", exec(`VACUUM effects`), true, true},
		{"another database without the column", elsewhere("42703"), false, false},
		{"another database that shuts down", elsewhere("57P01"), false, false},
		{"another database after a statement of ours failed", func(ctx context.Context, tx pgx.Tx, h *handlerTest) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return elsewhere("57P01")(ctx, tx, h)
		}, false, false},
		{"a value that COPY cannot encode", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			return second(tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"},
				pgx.CopyFromRows([][]any{{struct{}{}}})))
		}, false, false},
		{"a COPY whose source fails, and a handler that ignores that", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			_, _ = tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"},
				pgx.CopyFromFunc(func() ([]any, error) { return nil, errors.New("no rows") }))
			return nil
		}, false, false},
		{"a deadlock that a savepoint took back", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, raise("40P01"))
				return err
			})
		}, true, false},
		{"a deadlock that a savepoint took back, after many errors", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) (err error) {
			for i := range 70 {
				err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					return second(tx.Exec(ctx, raise(map[bool]string{false: "23505", true: "40P01"}[i == 69])))
				})
			}
			return err
		}, true, false},
		{"a deadlock before many statements that fail for it", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			_, err := tx.Exec(ctx, raise("40P01"))
			for range 70 {
				_, _ = tx.Exec(ctx, `SELECT 1`)
			}
			return err
		}, true, false},
		{"a deadlock on the connection itself", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			_, err := tx.Conn().Exec(ctx, raise("40P01"))
			return err
		}, true, false},
		{"an error of the handler's own, after a missing column that ROLLBACK TO took back", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			if _, err := tx.Exec(ctx, `SAVEPOINT mine`); err != nil {
				return err
			}
			_, _ = tx.Exec(ctx, `SELECT missing FROM effects`)
			if _, err := tx.Exec(ctx, `ROLLBACK TO mine`); err != nil {
				return err
			}
			return errors.New("the order is not valid")
		}, false, false},
		{"a constraint, after a missing column that ROLLBACK TO took back", func(ctx context.Context, tx pgx.Tx, _ *handlerTest) error {
			if _, err := tx.Exec(ctx, `SAVEPOINT mine`); err != nil {
				return err
			}
			_, _ = tx.Exec(ctx, `SELECT missing FROM effects`)
			if _, err := tx.Exec(ctx, `ROLLBACK TO mine`); err != nil {
				return err
			}
			_, _ = tx.Exec(ctx, raise("23505"))
			return errors.New("the order is not valid")
		}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error { return tt.do(ctx, tx, h) })
			if err == nil || h.store.Retryable(err) != tt.retryable || h.store.Ambiguous(err) != tt.ambiguous {
				t.Errorf("InTx = %v; retryable %v, ambiguous %v; want %v, %v", err, h.store.Retryable(err),
					h.store.Ambiguous(err), tt.retryable, tt.ambiguous)
			}
			if n := h.count(`SELECT count(*) FROM effects`); n != 0 {
				t.Errorf("%d effects", n)
			}
			if err := h.handle("k", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Errorf("claimed again: %v", err)
			}
		})
	}
}

// The distinction between a refused COMMIT and an unknown outcome does not depend on the language of the server's
// messages.
func TestRefusedCommitInAnotherLanguage(t *testing.T) {
	for _, tt := range []struct {
		severity, code string
		want           bool
	}{
		{"ERROR", "23505", true},
		{"ERROR", "TX001", true},
		{"ERROR", "P0001", true},
		{"FATAL", "23505", false},
		{"PANIC", "23505", false},
		{"ERROR", "40001", true},
		{"ERROR", "40003", false},
		{"ERROR", "57014", false},
		{"ERROR", "XX000", false},
		{"FATAL", "25P03", true},
		{"FATAL", "25P04", false},
		{"", "23505", true},
	} {
		err := fmt.Errorf("commit: %w", &pgconn.PgError{
			Severity: "FEHLER", SeverityUnlocalized: tt.severity,
			Code: tt.code,
		})
		if got := pgxstore.IsDefinite(err); got != tt.want {
			t.Errorf("%s %s: refused: %v, want %v", tt.severity, tt.code, got, tt.want)
		}
	}
}

// When a handler is idle too long between two statements, the error names the limit that ended its transaction.
func TestIdleLimitIsNamed(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"then a statement": func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, "late") },
		"then COMMIT":      func(context.Context, pgx.Tx) error { return nil },
		"then a statement whose error is swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_ = effect(ctx, tx, "late")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{IdleInTxTimeout: 200 * time.Millisecond})
			for ran := false; !ran; {
				err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
					ran = true
					var pid uint32
					if err := tx.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
						return err
					}
					for h.count(fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE pid = %d`, pid)) > 0 {
						<-time.After(5 * time.Millisecond)
					}
					return do(ctx, tx)
				})
				if !ran && h.store.Retryable(err) {
					continue // on a busy machine the claim itself may exceed the limit
				}
				if err == nil || !h.store.Retryable(err) || !h.store.Ambiguous(err) ||
					errors.Is(err, dedup.ErrTxEnded) || !strings.Contains(err.Error(),
					"Config.IdleInTxTimeout (200ms)") {
					t.Errorf("InTx = %v; retryable %v, ambiguous %v; want both, and the limit named", err,
						h.store.Retryable(err), h.store.Ambiguous(err))
				}
			}
		})
	}
}
