package pgxstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// swept is the row that CALL txonce_sweep returns.
type swept struct {
	keys int
	done bool
}

func callSweep(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, args string,
) (s swept, err error) {
	err = db.QueryRow(ctx, `CALL txonce_sweep(`+args+`)`).Scan(&s.keys, &s.done)
	return s, err
}

func (db *outboxDB) mustSweep(tb testing.TB, args string, want swept) {
	tb.Helper()
	if got, err := callSweep(tb.Context(), db.pool, args); err != nil || got != want {
		tb.Errorf("CALL txonce_sweep(%s): %+v, error %v; want %+v", args, got, err, want)
	}
}

// fill inserts n keys that expire at times around now, half of them before.
func (db *outboxDB) fill(tb testing.TB, n int) {
	tb.Helper()
	db.exec(tb, `INSERT INTO processed_messages (key, expires_at, consumer, id)
SELECT gen_random_uuid(), clock_timestamp() + (i % 2 * 2 - 1) * interval '1 hour', 'billing', 'order-' || i FROM generate_series(1, $1::int) AS i`, n)
}

func (db *outboxDB) value(tb testing.TB, query string) string {
	tb.Helper()
	return strings.Join(db.strings(tb, query), " ")
}

func eachPostgres(t *testing.T, f func(t *testing.T, db *outboxDB)) {
	t.Helper()
	t.Parallel()
	for name, server := range map[string]func(testing.TB) string{"15": testdb.Postgres, "18": testdb.Postgres18} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newOutboxDB(t, server, 8))
		})
	}
}

const expiredLeft = `SELECT count(*)::text FROM processed_messages WHERE expires_at < now()`

func TestSweepProcedureDoesWhatASweeperDoes(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		at := time.Now()
		db.claimAt(t, "old", at, dedup.First)
		db.claimAt(t, "parked", time.Time{}, dedup.First)
		db.expire(t, 20*24*time.Hour)
		at = at.Add(-20 * 24 * time.Hour)
		db.claimAt(t, "young", time.Now(), dedup.First)
		db.claimAt(t, "old", at, dedup.Duplicate) // it counts until it is deleted
		db.exec(t, `INSERT INTO dead_letters (id, key, consumer, message_id, window_seconds, cause, error, topic, position, payload, headers, attempts)
SELECT gen_random_uuid(), key, consumer, id, 1, c, '', '', '', '', '{}', 1 FROM processed_messages, unnest('{exhausted,outcome_unknown}'::text[]) AS c WHERE id = 'young'`)

		db.mustSweep(t, ``, swept{2, true})
		db.mustSweep(t, ``, swept{0, true})
		db.claimAt(t, "old", at, dedup.Unprovable) // not First: it may have run
		db.claimAt(t, "young", time.Now(), dedup.Duplicate)
		if got := db.value(t, `SELECT cause FROM dead_letters`); got != "outcome_unknown" {
			t.Errorf("the dead letters that are left: %s", got)
		}
		if got := db.value(t, `SELECT (ended_at > now() - interval '1 minute')::text FROM txonce_passes`); got != "true" {
			t.Errorf("the end of the pass is recorded: %s", got)
		}
	})
}

// Each portion commits by itself, and the next call goes on where the time was over.
func TestSweepProcedureWorksInPortions(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		const n = 20_000
		db.fill(t, n)
		first, err := callSweep(t.Context(), db.pool, `'0'`)
		if err != nil || first.done || first.keys == 0 || first.keys > 5000 {
			t.Fatalf("a call without time: %+v, error %v; want one portion", first, err)
		}
		if got := db.value(t, expiredLeft); got != fmt.Sprint(n/2-first.keys) {
			t.Errorf("%s expired keys are left after %d of %d", got, first.keys, n/2)
		}
		db.mustSweep(t, `'1 minute'`, swept{n/2 - first.keys, true})
		if got := db.value(t, `SELECT count(*)::text FROM processed_messages`); got != fmt.Sprint(n/2) {
			t.Errorf("%s keys are left, want %d", got, n/2)
		}
	})
}

// Neither the schema's name nor objects that search_path finds first mislead it.
func TestSweepProcedureUnderAHostileSearchPath(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) string{"15": testdb.Postgres, "18": testdb.Postgres18} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testPool(t, testdb.Schema(t, server(t)), 2)
			var here string
			if err := pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&here); err != nil {
				t.Fatal(err)
			}
			own := `Odd "name's% ` + here[len(here)-12:]
			quoted := pgx.Identifier{own}.Sanitize()
			t.Cleanup(func() {
				_, _ = pool.Exec(context.WithoutCancel(t.Context()), `DROP SCHEMA `+quoted+` CASCADE`)
			})
			if err := pgxstore.Migrate(t.Context(), pool, own); err != nil {
				t.Fatal(err)
			}
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Conn().Close(context.WithoutCancel(t.Context()))
			defer conn.Release()
			for _, q := range []string{
				`INSERT INTO ` + quoted + `.processed_messages (key, expires_at) VALUES (gen_random_uuid(), now() - interval '1 h'), (gen_random_uuid(), now() + interval '1 h')`,
				`CREATE TABLE processed_messages AS TABLE ` + quoted + `.processed_messages`,
				`CREATE TABLE txonce_sweep AS TABLE ` + quoted + `.txonce_sweep`,
				`CREATE TABLE pg_class (oid oid, relnamespace oid)`,
				`CREATE FUNCTION set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT 1 / 0 || '''''`,
				`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz'`,
				`CREATE FUNCTION pg_sleep(float8) RETURNS void LANGUAGE sql AS 'SELECT 1 / 0'`,
				`CREATE FUNCTION pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS 'SELECT ''1''::xid8'`,
				`CREATE FUNCTION never(timestamptz, interval) RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz'`,
				`CREATE OPERATOR + (leftarg = timestamptz, rightarg = interval, function = never)`,
				`CREATE FUNCTION yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
				`CREATE OPERATOR = (leftarg = text, rightarg = text, function = yes)`,
				`CREATE TEMPORARY TABLE txonce_passes (ended_at timestamptz)`,
				`SET search_path = ` + here + `, pg_catalog`,
			} {
				if _, err := conn.Exec(t.Context(), q, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatalf("%s: %v", q, err)
				}
			}
			if _, err := conn.Exec(t.Context(), `DELETE FROM `+quoted+`.processed_messages`, pgx.QueryExecModeSimpleProtocol); err == nil ||
				!strings.Contains(hintOf(err), quoted+`.txonce_sweep`) {
				t.Errorf("a foreign DELETE: %v, hint %s", err, hintOf(err))
			}
			for _, want := range []swept{{1, true}, {0, true}} {
				var got swept
				if err := conn.QueryRow(t.Context(), `CALL `+quoted+`.txonce_sweep('10 s')`,
					pgx.QueryExecModeSimpleProtocol).Scan(&got.keys, &got.done); err != nil || got != want {
					t.Fatalf("%+v, error %v; want %+v", got, err, want)
				}
			}
			var left, foreign int
			if err := conn.QueryRow(t.Context(), `SELECT (SELECT pg_catalog.count(*) FROM `+quoted+`.processed_messages), (SELECT pg_catalog.count(*) FROM processed_messages)`,
				pgx.QueryExecModeSimpleProtocol).Scan(&left, &foreign); err != nil || left != 1 || foreign != 2 {
				t.Errorf("%d keys are left, and %d in the other table; error %v", left, foreign, err)
			}
		})
	}
}

func TestSweepProcedureRefuses(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		db.fill(t, 10)
		for _, test := range []struct{ name, set, call, says string }{
			{"within a transaction", `BEGIN`, `CALL txonce_sweep()`, "invalid transaction termination"},
			{"REPEATABLE READ", `SET default_transaction_isolation = 'repeatable read'`, `CALL txonce_sweep()`, "the isolation level is repeatable read"},
			{"SERIALIZABLE", `SET default_transaction_isolation = 'serializable'`, `CALL txonce_sweep()`, "the isolation level is serializable"},
			{"a statement_timeout that is too short", `SET statement_timeout = '30 s'`, `CALL txonce_sweep('31 s')`, "statement_timeout 30s would end the call"},
			{"a negative limit", ``, `CALL txonce_sweep('-1 s')`, "must not be negative or NULL"},
			{"no limit", ``, `CALL txonce_sweep(NULL)`, "must not be negative or NULL"},
		} {
			conn, err := pgx.Connect(t.Context(), db.dsn)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{test.set, test.call} {
				if _, err = conn.Exec(t.Context(), q, pgx.QueryExecModeSimpleProtocol); err != nil {
					break
				}
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: error %v, want %q", test.name, err, test.says)
			}
			_ = conn.Close(context.WithoutCancel(t.Context()))
		}
		if got := db.value(t, expiredLeft); got != "5" {
			t.Errorf("%s expired keys are left, want 5", got)
		}
	})
}

// A clock that jumps ahead makes keys expire too early.
func TestSweepProcedureRefusesAClockThatJumpsAhead(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		db.mustSweep(t, ``, swept{0, true}) // it has seen the right clock
		at := time.Now()
		db.claimAt(t, "k", at, dedup.First)
		const jump = 20 * 24 * time.Hour
		db.expire(t, jump)
		db.exec(t, `UPDATE txonce_sweep SET clock = clock - interval '20 days'`)
		_, err := callSweep(t.Context(), db.pool, ``)
		if err == nil || !strings.Contains(err.Error(), "if the clock has jumped ahead") ||
			!strings.Contains(hintOf(err), "clock_jump => '20 days 01:00") {
			t.Errorf("error %v, hint %s", err, hintOf(err))
		}
		db.claimAt(t, "k", at.Add(-jump), dedup.Duplicate)
		db.mustSweep(t, `clock_jump => '21 days'`, swept{1, true}) // a person has looked at the clock
		db.claimAt(t, "k2", time.Now(), dedup.First)
		db.mustSweep(t, ``, swept{0, true})

		// A Sweeper's clock counts too.
		db.exec(t, `UPDATE txonce_sweep SET clock = clock - interval '20 days', owner = NULL`)
		if s, err := db.store.Purge(t.Context(), dedup.Sweep{Owner: "go", Lease: time.Minute, Limit: 10}); err != nil || !s.Done {
			t.Fatalf("%+v, %v", s, err)
		}
		db.exec(t, `UPDATE txonce_sweep SET owner = NULL`)
		db.mustSweep(t, ``, swept{0, true})
	})
}

func TestSweepProcedureTakesTheLeaseOfSweepers(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		purge := func(busy bool) {
			t.Helper()
			if s, err := db.store.Purge(t.Context(), dedup.Sweep{Owner: "go", Lease: 5 * time.Minute, Limit: 100}); err != nil || s.Busy != busy {
				t.Errorf("Purge: %+v, error %v; want busy %v", s, err, busy)
			}
		}
		purge(false)
		db.fill(t, 10)
		db.mustSweep(t, ``, swept{})
		db.expire(t, 6*time.Minute) // the lease ends
		db.mustSweep(t, ``, swept{5, true})
		purge(true)
		db.expire(t, 10*time.Minute)
		purge(false)
	})
}

// Sweepers, calls of the procedure and claims at once: each expired key is deleted once, and no claim fails.
func TestSweepProcedureBesideSweepers(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		const n = 12_000
		db.fill(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		byGo, byCall := 0, 0
		var wg sync.WaitGroup
		for range 2 {
			s, err := dedup.NewSweeper(dedup.SweeperConfig{
				Store: db.store, Every: 5 * time.Millisecond, Lease: 10 * time.Millisecond, Limit: 500,
				AlarmAfter: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
				OnAlarm: func(a dedup.Alarm) { t.Errorf("a Sweeper: %+v", a) },
				Trace: &dedup.SweepTrace{Swept: func(_ context.Context, e dedup.SweepEvent) {
					mu.Lock()
					defer mu.Unlock()
					byGo += e.Result.Keys
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { _ = s.Run(ctx) })
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				// so that both get the lease
				_, err := db.pool.Exec(ctx, `UPDATE txonce_sweep SET owner = NULL`)
				var s swept
				if err == nil {
					s, err = callSweep(ctx, db.pool, `'0'`)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("CALL: %v", err)
				}
				mu.Lock()
				byCall += s.keys
				mu.Unlock()
			}
		})
		filled := 1
		for i, began := 0, time.Now(); time.Since(began) < 2*time.Minute; i++ {
			db.claimAt(t, fmt.Sprint("new-", i), time.Now(), dedup.First)
			if db.value(t, expiredLeft) != "0" {
				continue
			}
			mu.Lock()
			both := byGo > 0 && byCall > 0
			mu.Unlock()
			if both {
				break
			}
			db.fill(t, n) // one of them was never at work
			filled++
		}
		cancel()
		wg.Wait()
		// a call or a purge that was cancelled may have committed, and not said so
		if byGo+byCall > filled*n/2 || byGo == 0 || byCall == 0 {
			t.Errorf("Sweepers deleted %d keys and calls %d, of %d", byGo, byCall, filled*n/2)
		}
		if got := db.value(t, `SELECT count(*)::text FROM processed_messages WHERE expires_at < now() OR id LIKE 'order-%'`); got != fmt.Sprint(filled*n/2) {
			t.Errorf("%s keys of the beginning are left, want %d", got, filled*n/2)
		}
	})
}

// Whenever it is killed, a key that is gone is from before the horizon.
func TestSweepProcedureKilled(t *testing.T) {
	eachPostgres(t, func(t *testing.T, db *outboxDB) {
		const n = 30_000
		db.fill(t, n)
		cut := 0
		for i := range 8 {
			conn, err := pgx.Connect(t.Context(), db.dsn)
			if err != nil {
				t.Fatal(err)
			}
			killed := make(chan error, 1)
			pid := conn.PgConn().PID()
			time.AfterFunc(time.Duration(1+7*i)*time.Millisecond, func() {
				killed <- second(db.pool.Exec(context.WithoutCancel(t.Context()), `SELECT pg_terminate_backend($1)`, pid))
			})
			if _, err := callSweep(t.Context(), conn, `'1 minute'`); err != nil {
				cut++
			}
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(context.WithoutCancel(t.Context()))
			if got := db.value(t, `SELECT count(*)::text FROM generate_series(1, `+fmt.Sprint(n)+`) AS i
WHERE i % 2 = 0 AND NOT EXISTS (SELECT FROM processed_messages WHERE id = 'order-' || i) AND (SELECT forgotten_until FROM txonce_sweep) IS NULL`); got != "0" {
				t.Errorf("%s keys are gone without a horizon", got)
			}
		}
		if cut == 0 {
			t.Error("no call was killed: this case tried nothing")
		}
		if s, err := callSweep(t.Context(), db.pool, `'1 minute'`); err != nil || !s.done {
			t.Fatalf("%+v, %v", s, err)
		}
		if s, err := callSweep(t.Context(), db.pool, `'1 minute'`); err != nil || !s.done { // what the first pages kept
			t.Fatalf("%+v, %v", s, err)
		}
		if got := db.value(t, `SELECT count(*) || ' ' || count(*) FILTER (WHERE expires_at < now()) FROM processed_messages`); got != fmt.Sprint(n/2, " 0") {
			t.Errorf("keys left, and expired: %s", got)
		}
	})
}

// The rights of the role txonce_sweeper of docs/operations.md are enough.
func TestSweepProcedureOfAnOrdinaryRole(t *testing.T) {
	t.Parallel()
	db := newOutboxDBAt(t, testdb.Schema(t, testdb.Postgres18(t)), 2)
	db.fill(t, 10)
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx := t.Context()
	role := "txonce_sweeper_" + strings.ReplaceAll(db.value(t, `SELECT current_schema()`), `"`, "")
	drop := func() {
		for _, q := range []string{`RESET ROLE`, `DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			_, _ = conn.Exec(context.WithoutCancel(ctx), q)
		}
	}
	defer drop()
	for _, q := range []string{
		`CREATE ROLE ` + role, `GRANT USAGE ON SCHEMA ` + db.value(t, `SELECT quote_ident(current_schema())`) + ` TO ` + role,
		`GRANT SELECT, UPDATE, DELETE ON processed_messages, dead_letters TO ` + role,
		`GRANT SELECT, UPDATE ON txonce_sweep, txonce_passes TO ` + role, `SET ROLE ` + role,
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	if s, err := callSweep(ctx, conn, ``); err != nil || s != (swept{5, true}) {
		t.Errorf("%+v, error %v", s, err)
	}
}
