package pgxstore_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// sessionChanges are the changes that a handler may leave in its session.
var sessionChanges = map[string][]string{
	"SET search_path":                   {`SET search_path = @`},
	"SET search_path in a function":     {`CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', '@', false); END $$`, `SELECT f()`},
	"SET synchronous_commit":            {`SET synchronous_commit = off`},
	"set_config of a setting":           {`SELECT set_config('synchronous_commit', 'off', false)`},
	"SET SESSION CHARACTERISTICS":       {`SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`},
	"SET ROLE":                          {`SET ROLE pg_monitor`},
	"SET ROLE in a block":               {`DO $$ BEGIN SET ROLE pg_monitor; END $$`},
	"a temporary table":                 {`CREATE TEMP TABLE effects (name text)`},
	"a temporary table of a block":      {`DO $$ BEGIN CREATE TEMP TABLE effects (name text); END $$`},
	"a temporary table of a function":   {`CREATE FUNCTION g() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE effects (name text); END $$`, `SELECT g()`},
	"a lock of the session":             {`SELECT pg_advisory_lock(42)`},
	"a lock of a block":                 {`DO $$ BEGIN PERFORM pg_advisory_lock(42); END $$`},
	"a setting of a block":              {`DO $$ BEGIN SET app.tenant = 'x'; END $$`},
	"a prepared statement":              {`PREPARE left_behind AS SELECT 1`},
	"read-only in a block":              {`DO $$ BEGIN PERFORM set_config('default_transaction_read_only', 'on', false); END $$`},
	"SET behind a comment":              {"-- x\rSET search_path = @"},
	"SET in a string of statements":     {`SELECT 1; SET search_path = @`},
	"LISTEN":                            {`LISTEN left_behind`},
	"SET LOCAL, which is not left":      {`SET LOCAL search_path = @`},
	"SET LOCAL, also for COMMIT":        {`SET LOCAL synchronous_commit = off`},
	"a temporary table that is gone":    {`CREATE TEMP TABLE effects (name text) ON COMMIT DROP`},
	"the session's own search_path":     {`SELECT set_config('search_path', current_setting('search_path'), true)`},
	"a setting for the transaction":     {`SELECT set_config('app.tenant', 'x', true)`},
	"a setting, and an error undoes it": {`SET search_path = @`, `SELECT 1/0`},
}

// Whatever a handler changes in its session, the next messages get an unchanged session, and their claims use the same
// tables.
func TestSessionsDoNotLeak(t *testing.T) {
	for name, changes := range sessionChanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			other := h.otherSchema()
			clean := h.sessionOf()
			err := h.handle("leaves", func(ctx context.Context, tx pgx.Tx) error {
				for _, sql := range changes {
					if _, err := tx.Exec(ctx, strings.ReplaceAll(sql, "@", other)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil && !strings.Contains(err.Error(), "division by zero") {
				t.Fatal(err)
			}
			for i := range 6 { // more messages than the pool has connections
				id := fmt.Sprint("next ", i)
				var found string
				claimed := again(h.store, func() error {
					return h.handle(id, func(ctx context.Context, tx pgx.Tx) error {
						if err := tx.QueryRow(ctx, sessionQuery).Scan(&found); err != nil {
							return err
						}
						return effect(ctx, tx, id)
					})
				})
				if claimed != nil {
					t.Fatalf("%s: %v", id, claimed)
				}
				if found != clean {
					t.Errorf("%s finds the session\n%s, want\n%s", id, found, clean)
				}
				if n := h.count(`SELECT count(*) FROM ` + other + `.processed_messages`); n > 0 {
					t.Fatalf("%d claims are in the other schema", n)
				}
			}
			if n := h.count(`SELECT count(*) FROM effects`); n != 6 {
				t.Errorf("%d effects, want 6", n)
			}
		})
	}
}

const sessionQuery = `SELECT concat_ws(' | ', current_user, session_user, current_setting('search_path'), current_setting('synchronous_commit'),
	current_setting('default_transaction_read_only'), nullif(current_setting('app.tenant', true), ''),
	(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 42),
	(SELECT count(*) FROM pg_prepared_statements WHERE name = 'left_behind'), (SELECT count(*) FROM pg_listening_channels()),
	to_regclass('pg_temp.effects'))`

func (h *handlerTest) sessionOf() (session string) {
	h.Helper()
	if err := h.db.pool.QueryRow(h.Context(), sessionQuery).Scan(&session); err != nil {
		h.Fatal(err)
	}
	return session
}

func (h *handlerTest) count(sql string) (n int) {
	h.Helper()
	if err := h.db.pool.QueryRow(h.Context(), sql).Scan(&n); err != nil {
		h.Fatal(err)
	}
	return n
}

// otherSchema creates the tables of another tenant.
func (h *handlerTest) otherSchema() (schema string) {
	h.Helper()
	server := testdb.Postgres(h)
	dsn := testdb.Schema(h, server)
	pool := testPool(h, dsn, 1)
	makeTables(h, pool, `CREATE TABLE effects (name text NOT NULL)`)
	if err := pool.QueryRow(h.Context(), `SELECT quote_ident(current_schema())`).Scan(&schema); err != nil {
		h.Fatal(err)
	}
	return schema
}

// A message that is enqueued under another search_path is in this Store's outbox.
func TestEnqueueNamesItsSchema(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	other := h.otherSchema()
	if err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = `+other); err != nil {
			return err
		}
		return h.store.Enqueue(ctx, tx, outbox.Message{ID: "m", Topic: "paid", OrderingKey: "k"})
	}); err != nil {
		t.Fatal(err)
	}
	here, there := h.count(`SELECT count(*) FROM outbox_messages`),
		h.count(`SELECT count(*) FROM `+other+`.outbox_messages`)
	if here != 1 || there != 0 {
		t.Errorf("%d messages in this outbox, %d in the other", here, there)
	}
}

// COMMIT is as durable as it was at the claim, whatever the handler set for its transaction.
func TestCommitIsDurable(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"SET LOCAL": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`)
			return err
		},
		"SET": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET synchronous_commit = off`)
			return err
		},
		"set_config": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT set_config($1, $2, true)`, "synchronous_commit", "off")
			return err
		},
		"set_config with named arguments": func(ctx context.Context, tx pgx.Tx) error {
			args := pgx.NamedArgs{"name": "synchronous_commit", "value": "off"}
			return second(tx.Exec(ctx, `SELECT set_config(@name, @value, true)`, args))
		},
		"set_config with an argument of another type": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, `SELECT set_config($1, $2, true)`,
				pgtype.Text{String: "Synchronous_Commit", Valid: true}, "off"))
		},
		"set_config with a pointer": func(ctx context.Context, tx pgx.Tx) error {
			name := "synchronous_commit"
			return second(tx.Exec(ctx, `SELECT set_config($1, $2, true)`, &name, "off"))
		},
		"set_config, prepared": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Prepare(ctx, "prepared", `SELECT set_config($1, $2, true)`); err != nil {
				return err
			}
			return second(tx.Exec(ctx, "prepared", "synchronous_commit", "off"))
		},
		"SET LOCAL in a block": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, `DO $$ BEGIN SET LOCAL synchronous_commit = off; END $$`))
		},
		"set_config in a block": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, `DO $$ BEGIN PERFORM set_config('synchronous_commit', 'off', true); END $$`))
		},
		"EXECUTE in a block": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, `DO $$ BEGIN EXECUTE 'SET LOCAL synchronous_commit = off'; END $$`))
		},
		"UPDATE pg_settings": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, `UPDATE pg_settings SET setting = 'off' WHERE name = $1`, "synchronous_commit"))
		},
		"on the connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, `SET LOCAL synchronous_commit = off`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			h.commitsDurably(do)
		})
	}
}

// commitsDurably checks that COMMIT has the usual synchronous_commit after do.
func (h *handlerTest) commitsDurably(do interleaveHandler) {
	h.Helper()
	// A deferred trigger runs within COMMIT, and reads the setting that COMMIT uses.
	h.db.exec(h.T, `CREATE TABLE seen (sync text)`)
	h.db.exec(h.T, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	h.db.exec(h.T, `CREATE CONSTRAINT TRIGGER see AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	if err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
		if err := do(ctx, tx); err != nil {
			return err
		}
		return effect(ctx, tx, "k")
	}); err != nil {
		h.Fatal(err)
	}
	if got := h.db.strings(h.T, `SELECT sync FROM seen`); len(got) != 1 || got[0] != "on" {
		h.Errorf("COMMIT ran with synchronous_commit %v", got)
	}
}

// A large object that a handler keeps cannot be used in another transaction.
func TestLargeObjectsEndWithTheirTransaction(t *testing.T) {
	for name, enqueues := range map[string]bool{"alone": false, "with messages": true} {
		t.Run(name, func(t *testing.T) {
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			var kept pgx.LargeObjects
			if err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
				kept = tx.LargeObjects()
				if enqueues {
					return h.store.Enqueue(ctx, tx, outbox.Message{ID: "m", Topic: "paid", OrderingKey: "k"})
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := h.handle("next", func(ctx context.Context, _ pgx.Tx) error {
				if oid, err := kept.Create(ctx, 0); err == nil {
					t.Errorf("object %d was made in the next message's transaction", oid)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The application's own code may also change a session. Then claims are repeated on another connection.
func TestSessionChangedOutsideOfHandlers(t *testing.T) {
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	if err := h.handle("first", func(context.Context, pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	conns := h.db.pool.AcquireAllIdle(t.Context())
	for _, conn := range conns {
		if _, err := conn.Exec(t.Context(), `SET synchronous_commit = off`); err != nil {
			t.Fatal(err)
		}
		conn.Release()
	}
	for _, recs := range [][]string{{"one"}, {"first"}, {"a", "b"}} {
		var claims []dedup.Record
		for _, id := range recs {
			claims = append(claims, dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()})
		}
		if err := again(h.store, func() error {
			return h.store.InTx(t.Context(), claims, func(tx pgx.Tx, _ []dedup.Claim) error {
				var sync string
				err := tx.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&sync)
				if sync != "on" {
					t.Errorf("%v: a handler runs with synchronous_commit = %s", recs, sync)
				}
				return err
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A dead letter without a key claims nothing. Its transaction does not run in a session that other code has changed,
// either.
func TestATransactionThatClaimsNothingInAChangedSession(t *testing.T) {
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 1)
	makeTables(t, pool, ``)
	s := newStore(t, pgxstore.Config{Pool: pool})
	if err := s.Register(t.Context(), "billing", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `SET synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	var sync string
	err := s.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
		return tx.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&sync)
	})
	if err != nil || sync != "on" {
		t.Errorf("InTx = %v, with synchronous_commit = %s; want on", err, sync)
	}
}

// A setting that changes for all sessions is accepted, or refused if commits could be lost.
func TestRoleIsAlteredWhileTheStoreRuns(t *testing.T) {
	server := testdb.Postgres(t)
	admin := testPool(t, server, 1)
	role := fmt.Sprintf("txonce_role_%d", time.Now().UnixNano())
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	exec(`CREATE ROLE ` + role + ` LOGIN SUPERUSER`)
	t.Cleanup(func() { exec(`DROP ROLE ` + role) })
	dsn, err := url.Parse(testdb.Schema(t, server))
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.User(role)
	pool := testPool(t, dsn.String(), 2)
	makeTables(t, pool, ``)
	s := newStore(t, pgxstore.Config{Pool: pool})
	claim := func(id string) error {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}
		return s.InTx(t.Context(), []dedup.Record{rec}, func(pgx.Tx, []dedup.Claim) error { return nil })
	}
	if err := claim("before"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		sync string
		ok   bool
	}{{"remote_write", true}, {"off", false}, {"on", true}} {
		exec(`ALTER ROLE ` + role + ` SET synchronous_commit = '` + tt.sync + `'`)
		pool.Reset()
		err := claim(tt.sync)
		if (err == nil) != tt.ok || err != nil && (!strings.Contains(err.Error(), "synchronous_commit is off") ||
			!s.Retryable(err)) {
			t.Errorf("synchronous_commit = %s: InTx = %v", tt.sync, err)
		}
	}
}
