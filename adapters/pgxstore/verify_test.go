package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
)

// handlerTest is a Store in a schema of its own, with a table for effects.
type handlerTest struct {
	*testing.T
	db          *outboxDB
	store       *pgxstore.Store
	interleaves int
}

func newHandlerTest(t *testing.T, server string, cfg pgxstore.Config) *handlerTest {
	t.Helper()
	db := openOutboxDB(t, testdb.Reused(t, server, outboxTables), 4)
	cfg.Pool = db.pool
	return &handlerTest{T: t, db: db, store: newStore(t, cfg)}
}

// handle claims id and runs do.
func (h *handlerTest) handle(id string, do func(ctx context.Context, tx pgx.Tx) error) error {
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}
	return h.store.InTx(h.Context(), []dedup.Record{rec}, func(tx pgx.Tx, claims []dedup.Claim) error {
		if claims[0].Verdict != dedup.First {
			h.Errorf("%s: %v, want first", id, claims[0].Verdict)
		}
		return do(h.Context(), tx)
	})
}

// When one handler of a batch misuses the transaction, this is found before the next handler runs. Claims of the ended
// transaction do not count for another one.
func TestVerifyTx(t *testing.T) {
	for _, m := range misuses() {
		t.Run(m.Name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			var verified error
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				if err := effect(ctx, tx, "one"); err != nil {
					return err
				}
				if err := h.store.VerifyTx(ctx, tx); err != nil {
					t.Errorf("VerifyTx of a good handler: %v", err)
				}
				if err := m.Do(ctx, tx); err != nil {
					t.Logf("do: %v", err)
				}
				verified = h.store.VerifyTx(ctx, tx)
				return nil // like a handler that ignores its errors
			})
			if m.Ends != errors.Is(verified, dedup.ErrTxEnded) {
				t.Errorf("VerifyTx = %v; ErrTxEnded wanted: %v", verified, m.Ends)
			}
			if (verified == nil) != (err == nil) {
				t.Errorf("VerifyTx = %v, then InTx = %v", verified, err)
			}
		})
	}
}

// A Commit or Rollback that was refused has committed nothing. InTx says so, and no one needs to investigate the
// message.
func TestARefusedEndIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known bool
		do    func(ctx context.Context, tx pgx.Tx) error
	}{
		{"defer tx.Rollback", true, func(ctx context.Context, tx pgx.Tx) error { defer tx.Rollback(ctx); return nil }},
		{"tx.Commit, whose error is returned", true, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }},
		{"COMMIT as text", true, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err }},
		{"the connection, and tx.Commit", false, func(ctx context.Context, tx pgx.Tx) error { tx.Conn(); return tx.Commit(ctx) }},
		{"COMMIT on the connection", false, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "COMMIT"); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				if err := effect(ctx, tx, "one"); err != nil {
					return err
				}
				return tt.do(ctx, tx)
			})
			if !errors.Is(err, dedup.ErrTxEnded) || errors.Is(err, dedup.ErrRolledBack) != tt.known ||
				h.store.Retryable(err) {
				t.Errorf("InTx = %v; ErrRolledBack wanted: %v", err, tt.known)
			}
		})
	}
}

// VerifyTx needs no round trip while the Store has seen every statement.
func TestVerifyTxAsksNobody(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
		if err := effect(ctx, tx, "one"); err != nil {
			return err
		}
		over, cancel := context.WithCancel(ctx)
		cancel() // no statement can be sent with this ctx
		return h.store.VerifyTx(over, tx)
	})
	if err != nil {
		t.Error(err)
	}
}

// A statement that the scanner calls harmless does not end a transaction on a real server.
func TestInspectAgreesWithTheServer(t *testing.T) {
	for name, dsn := range map[string]string{"postgres15": testdb.Postgres(t), "postgres18": testdb.Postgres18(t)} {
		t.Run(name, func(t *testing.T) {
			pool := testPool(t, dsn, 1)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			pg := conn.Conn().PgConn()
			send := func(sql string) (xid string) {
				results, _ := pg.Exec(t.Context(), sql).ReadAll()
				if n := len(results); n > 0 && len(results[n-1].Rows) == 1 {
					xid = string(results[n-1].Rows[0][0])
				}
				return xid
			}
			ended := 0
			for _, sql := range []string{
				"-- x\rROLLBACK AND CHAIN", "-- x\nROLLBACK AND CHAIN", "-- x\fROLLBACK AND CHAIN",
				"-- ROLLBACK AND CHAIN",
				"SELECT 1; COMMIT AND CHAIN", "SELECT '\\'; COMMIT AND CHAIN; --'",
				"SELECT E'\\'; COMMIT AND CHAIN; --'",
				"SELECT E'\\\\'; COMMIT AND CHAIN; --'", "SELECT E'a'\n'\\'; COMMIT AND CHAIN; --'",
				"SELECT E'a' -- '\n'\\'; COMMIT AND CHAIN; --'",
				"SELECT 'a'\n'\\'; COMMIT AND CHAIN; --'", "SELECT U&'\\0041'; COMMIT AND CHAIN; --'",
				"SELECT n'\\'; COMMIT AND CHAIN; --'",
				"SELECT $$;$$; COMMIT AND CHAIN", "SELECT $a$ $b$; COMMIT AND CHAIN; $a$",
				"SELECT $a$ $b$; $a$; COMMIT AND CHAIN",
				"SELECT 1 AS a$$; COMMIT AND CHAIN; --$$", "SELECT 1 AS ä$$; COMMIT AND CHAIN; --$$",
				"SELECT $ä$;$ä$; COMMIT AND CHAIN",
				"SELECT 1 AS \"a\"\";\"; COMMIT AND CHAIN", "/* /* */ ; */ COMMIT AND CHAIN",
				"/*/**/*/ COMMIT AND CHAIN", "SELECT 1 +-- ;\n1; COMMIT AND CHAIN",
				"SELECT 2 */* ; */ 3; COMMIT AND CHAIN", ";;COMMIT AND CHAIN", "(SELECT 1); COMMIT AND CHAIN",
				"SELECT 1 AS e, 'x\\'; COMMIT AND CHAIN; --'",
				"SELECT b'1'; COMMIT AND CHAIN", "SELECT CASE WHEN true THEN 1 END; COMMIT AND CHAIN",
				"DO $$ BEGIN PERFORM 1; END $$; COMMIT AND CHAIN",
				"CREATE FUNCTION pg_temp.f() RETURNS int BEGIN ATOMIC SELECT 1; END; COMMIT AND CHAIN", "END AND CHAIN",
				"ABORT AND CHAIN",
				"PREPARE x AS SELECT 1; EXECUTE x; DEALLOCATE x; COMMIT AND CHAIN", "ROLLBACK TO SAVEPOINT x",
				"SELECT 1\v; COMMIT AND CHAIN",
			} {
				send(`BEGIN`)
				before := send(`SELECT pg_current_xact_id()`)
				send(sql)
				after := send(`SELECT pg_current_xact_id()`)
				if over := after != "" && after != before; over {
					ended++
					if c := dialect.Inspect(sql); !c.Ends && !c.Unclear {
						t.Errorf("%q ended the transaction, and was called %+v", sql, c)
					}
				}
				send(`ROLLBACK`)
			}
			if ended < 15 {
				t.Errorf("%d strings ended their transaction: this test tries nothing", ended)
			}
		})
	}
}

// Handlers that leave rows or a batch open are at fault, not the database.
func TestRowsLeftOpen(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"rows": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 10)`) //nolint:sqlclosecheck // the fault itself
			return err
		},
		"rows, and a statement after them": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Query(ctx, `SELECT generate_series(1, 10)`); err != nil { //nolint:sqlclosecheck // the fault itself
				return err
			}
			return effect(ctx, tx, "never")
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			b.Queue(`SELECT 2`)
			_, err := tx.SendBatch(ctx, b).Exec()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			err := h.handle("k", do)
			if err == nil || h.store.Retryable(err) || !strings.Contains(err.Error(), "open") &&
				!strings.Contains(err.Error(), "busy") {
				t.Errorf("InTx = %v; want the handler's fault, and why", err)
			}
			t.Log(err)
			if err := h.handle("k", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Errorf("claimed again: %v", err)
			}
		})
	}
}

// A handler that keeps the connection can end the transaction while a later handler runs.
func TestAKeptConnectionIsProvenAfterEachHandler(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
		kept := tx.Conn()
		if err := errors.Join(effect(ctx, tx, "one"), h.store.VerifyTx(ctx, tx)); err != nil {
			t.Errorf("VerifyTx after the handler that keeps it: %v", err)
		}
		_, err := kept.Exec(ctx, "COMMIT AND CHAIN")
		if verified := h.store.VerifyTx(ctx, tx); err != nil || !errors.Is(verified, dedup.ErrTxEnded) {
			t.Errorf("%v; VerifyTx after a later handler = %v, want ErrTxEnded", err, verified)
		}
		return nil
	})
	if !errors.Is(err, dedup.ErrTxEnded) {
		t.Errorf("InTx = %v, want ErrTxEnded", err)
	}
}

// No server answers whether the handler has committed. InTx reports the doubt, and the next transaction can find out.
func TestLookBackWithoutAnAnswerIsADoubt(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	makeTables(t, testPool(t, dsn, 1), ``)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("no server answers")
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := newStore(t, pgxstore.Config{Pool: pool})
	for _, commits := range []bool{true, false} {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: fmt.Sprint(commits)}, Time: time.Now()}
		err = s.InTx(t.Context(), []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
			if commits {
				if _, err := tx.Conn().Exec(t.Context(), "COMMIT; BEGIN"); err != nil {
					t.Error(err)
				}
			}
			away.Store(true)
			return tx.Conn().Close(t.Context())
		})
		away.Store(false)
		doubt, ok := errors.AsType[*dedup.InDoubtError](err)
		if !ok || !s.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) {
			t.Fatalf("commits %v: InTx = %v, want an InDoubtError that is the database's fault", commits, err)
		}
		want := map[bool]dedup.Verdict{true: dedup.Duplicate, false: dedup.First}[commits]
		err = s.InTx(t.Context(), []dedup.Record{rec}, func(tx pgx.Tx, claims []dedup.Claim) error {
			committed, err := doubt.Committed(t.Context(), tx)
			if committed != commits || err != nil || claims[0].Verdict != want {
				t.Errorf("Committed = %v, %v; %v; want %v", committed, err, claims[0].Verdict, commits)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A role may have a statement_timeout shorter than ClaimTimeout. Then the key counts as in flight, and the database as
// healthy.
func TestAStatementTimeoutEndsTheWaitForAKey(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	makeTables(t, testPool(t, dsn, 1), ``)
	holder := newStore(t, pgxstore.Config{Pool: testPool(t, dsn, 2)})
	hasty := newStore(t, pgxstore.Config{Pool: testPool(t, dsn+"&statement_timeout=200", 2)})
	rec := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "1"}, Time: time.Now()}}
	err := holder.InTx(t.Context(), rec, func(pgx.Tx, []dedup.Claim) error {
		if err := hasty.InTx(t.Context(), rec, func(pgx.Tx, []dedup.Claim) error { return nil }); !errors.Is(err,
			dedup.ErrInFlight) || hasty.Retryable(err) {
			t.Errorf("InTx = %v, want ErrInFlight", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
