package pgxstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// TestStore runs each case once on each version, with this store or with sqlstore.
func TestStore(t *testing.T) {
	t.Parallel() // beside the other suites
	for _, server := range []struct {
		name     string
		dsn      func(testing.TB) string
		selected func(name, level string) bool
	}{
		{"postgres15", testdb.Postgres, isolations.Share(0, 2)},
		{"postgres18", testdb.Postgres18, isolations.Share(1, 2)},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			deduptest.TestStore(t, deduptest.Harness[pgx.Tx]{
				New:        func(t *testing.T) deduptest.DB[pgx.Tx] { return newDB(t, server.dsn(t)) },
				Isolations: isolations,
				Select:     server.selected,
				Codes:      deduptest.PostgresCodes(),
			})
		})
	}
}

var isolations = matrix.Levels{string(pgx.ReadCommitted), string(pgx.RepeatableRead), string(pgx.Serializable)}

// db is one schema, or one database behind a pooler.
type db struct {
	place
	pool *pgxpool.Pool
}

// place is where the tables of a test are created.
type place struct {
	dsn     string
	another func(t *testing.T) string                    // another one, without tables
	forgets func(t *testing.T) string                    // the same one, with asynchronous commits
	faulty  func(t *testing.T, f deduptest.Fault) string // the same one, where a COMMIT suffers f
}

func newDB(t *testing.T, server string) deduptest.DB[pgx.Tx] { return newDBAt(t, placeOn(t, server)) }

func placeOn(t *testing.T, server string) place {
	dsn := testdb.Reused(t, server, suiteTables)
	return place{
		dsn:     dsn,
		another: func(t *testing.T) string { return testdb.Schema(t, server) },
		forgets: func(*testing.T) string { return dsn + "&synchronous_commit=off" },
		faulty:  func(t *testing.T, f deduptest.Fault) string { return wireproxy.Postgres(t, dsn, f) },
	}
}

const suiteTables = `CREATE TABLE effects (name text NOT NULL); CREATE TABLE locks (name text PRIMARY KEY, n int NOT NULL DEFAULT 0)`

func newDBAt(t *testing.T, at place) deduptest.DB[pgx.Tx] {
	d := &db{place: at}
	d.pool = keptPool(t, d.dsn, 4)
	return deduptest.DB[pgx.Tx]{
		Open:     func(t *testing.T, o deduptest.Options) dedup.Store[pgx.Tx] { return d.open(t, d.dsn, o) },
		Tx:       d.tx,
		Effect:   effect,
		Effects:  d.effects,
		Age:      d.age,
		SetClock: func(s dedup.Store[pgx.Tx], now func() time.Time) { pgxstore.SetClock(s.(*node).Store, now) },
		Misuse:   misuses(),
		Raise:    raise,

		RaiseAtCommit:  failAtCommit,
		RegisterSource: d.registerSource,

		Lock:        d.lock,
		LockWait:    lockWait,
		Wrote:       wrote,
		Plant:       d.plant,
		Connections: func(_ *testing.T, s dedup.Store[pgx.Tx]) int { return int(s.(*node).pool.Stat().AcquiredConns()) },
		Faulty: func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[pgx.Tx] {
			return d.open(t, at.faulty(t, f), o)
		},
		NoSchema: func(t *testing.T) dedup.Store[pgx.Tx] { return d.open(t, at.another(t), deduptest.Options{}) },
		OldSchema: func(t *testing.T) dedup.Store[pgx.Tx] {
			d.exec(t, `UPDATE txonce_schema SET version = version + 100, works_with = works_with + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NewerSchema: func(t *testing.T) dedup.Store[pgx.Tx] {
			d.exec(t, `UPDATE txonce_schema SET version = version + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NotDurable: func(t *testing.T) dedup.Store[pgx.Tx] {
			return d.open(t, at.forgets(t), deduptest.Options{})
		},
	}
}

// node is a Store and its pool.
type node struct {
	*pgxstore.Store
	pool *pgxpool.Pool
}

func (d *db) open(t *testing.T, dsn string, o deduptest.Options) dedup.Store[pgx.Tx] {
	open := testPool
	if dsn == d.dsn {
		open = keptPool
	}
	pool := open(t, dsn, 16)
	return &node{newStore(t, pgxstore.Config{
		Pool:         pool,
		Isolation:    pgx.TxIsoLevel(o.Isolation),
		ClaimTimeout: o.Wait,
		Compact:      o.Compact,
	}), pool}
}

func (d *db) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := d.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (d *db) tx(ctx context.Context, o deduptest.Options, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(o.Isolation)}, fn)
}

func effect(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (name) VALUES ($1)`, name)
	return err
}

func (d *db) effects(t *testing.T) []string {
	rows, _ := d.pool.Query(t.Context(), `SELECT name FROM effects`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (d *db) age(t *testing.T, by time.Duration) {
	for _, sql := range []string{
		`UPDATE processed_messages SET expires_at = expires_at - $1::interval`,
		`UPDATE txonce_windows SET first_run = first_run - $1::interval, used_until = used_until - $1::interval`,
		`UPDATE txonce_sweep SET forgotten_until = forgotten_until - $1::interval, lease_until = lease_until - $1::interval`,
		`UPDATE operator_actions SET next_at = next_at - $1::interval`,
	} {
		d.exec(t, sql, by)
	}
}

func raise(ctx context.Context, tx pgx.Tx, code string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '%s'; END $$`, code))
	return err
}

func failAtCommit(ctx context.Context, tx pgx.Tx, code string) error {
	for _, sql := range testdb.FailAtCommit(code) {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (d *db) registerSource(t *testing.T, consumer, source string) (commit func(), waited func() bool) {
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	var pid int
	if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO txonce_sources (consumer, source) VALUES ($1, ''), ($1, $2)`,
		consumer, source); err != nil {
		t.Fatal(err)
	}
	commit = func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return commit, func() (yes bool) {
		if err := d.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))`, pid).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
}

func (d *db) lock(ctx context.Context, tx pgx.Tx, name string) error {
	if _, err := d.pool.Exec(ctx, `INSERT INTO locks (name) VALUES ($1) ON CONFLICT DO NOTHING`, name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT FROM locks WHERE name = $1 FOR UPDATE`, name)
	return err
}

func lockWait(ctx context.Context, tx pgx.Tx) (wait string, err error) {
	err = tx.QueryRow(ctx, `SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')`).Scan(&wait)
	return wait, err
}

func wrote(ctx context.Context, tx pgx.Tx) (yes bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&yes)
	return yes, err
}

func (d *db) plant(t *testing.T, at dedup.KeyHash, k dedup.Key) {
	d.exec(t, `INSERT INTO processed_messages (key, expires_at, consumer, tenant, id) VALUES ($1, now() + interval '1 day', $2, nullif($3, ''), $4)`,
		pgtype.UUID{Bytes: at, Valid: true}, k.Consumer, k.Tenant, k.ID)
}

// misuses lists how a handler can end or lose a pgx.Tx.
func misuses() []deduptest.Misuse[pgx.Tx] {
	text := func(name, sql string, args ...any) deduptest.Misuse[pgx.Tx] {
		return deduptest.Misuse[pgx.Tx]{Name: name, Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}}
	}
	raw := func(name string, ends bool, statements ...string) deduptest.Misuse[pgx.Tx] {
		return deduptest.Misuse[pgx.Tx]{Name: name, Ends: ends, Do: func(ctx context.Context, tx pgx.Tx) error {
			for _, sql := range statements {
				if _, err := tx.Conn().Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	return []deduptest.Misuse[pgx.Tx]{
		text("COMMIT as text", `COMMIT`),
		text("ROLLBACK as text", `ROLLBACK`),
		text("END as text behind a comment", "-- bye\n /* a /* nested */ one */ ; end transaction"),
		text("ABORT as text", `ABORT`),
		text("ROLLBACK AND CHAIN as text", `ROLLBACK WORK AND CHAIN`),
		text("PREPARE TRANSACTION as text", `PREPARE TRANSACTION 'x'`),
		text("ROLLBACK AND CHAIN behind a comment that a carriage return ends", "-- bye\rROLLBACK AND CHAIN"),
		text("COMMIT behind a string that looks escaped", `SELECT '\'; COMMIT; BEGIN; --'`),
		text("COMMIT hidden in a string of statements", `SELECT 1; COMMIT; BEGIN`, pgx.QueryExecModeSimpleProtocol),
		text("ROLLBACK hidden in a string of statements", `SELECT 1; ROLLBACK; BEGIN`, pgx.QueryExecModeSimpleProtocol),
		text("COMMIT hidden in a string without parameters", `SELECT 1; COMMIT; BEGIN`),
		text("ROLLBACK hidden in a string without parameters", `SELECT 1; ROLLBACK; BEGIN`),
		text("COMMIT hidden by a rewriter", `SELECT 1`, rewriter(`COMMIT AND CHAIN`)),
		text("ROLLBACK hidden, and none begun", `SELECT 1; ROLLBACK`, pgx.QueryExecModeSimpleProtocol),
		raw("COMMIT on the connection", true, `COMMIT`),
		raw("ROLLBACK on the connection", true, `ROLLBACK`),
		raw("COMMIT and BEGIN on the connection", true, `COMMIT`, `BEGIN`),
		raw("ROLLBACK and BEGIN on the connection", true, `ROLLBACK`, `BEGIN`),
		raw("ROLLBACK AND CHAIN on the connection", true, `ROLLBACK AND CHAIN`),
		{Name: "pgx.BeginFunc on the connection", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx.Conn(), func(pgx.Tx) error { return nil })
		}},
		{Name: "COMMIT AND CHAIN by the name of a prepared statement", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Conn().Prepare(ctx, "bye", `COMMIT AND CHAIN`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "bye")
			return err
		}},
		{Name: "rows left open", Do: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 10)`) //nolint:sqlclosecheck // the fault itself
			return err
		}},
		raw("a harmless statement on the connection", false, `SELECT 1`),
		{Name: "tx.Commit", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }},
		{Name: "tx.Rollback", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }},
		{Name: "COMMIT in a batch", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			b.Queue(`COMMIT`)
			return tx.SendBatch(ctx, b).Close()
		}},
		{Name: "COMMIT as a query", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, `COMMIT`)
			rows.Close()
			return rows.Err()
		}},
		{Name: "ROLLBACK as a query for one row", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, `ROLLBACK`).Scan()
		}},
		{Name: "COMMIT within a savepoint", Ends: true, Do: func(ctx context.Context, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = nested.Exec(ctx, `COMMIT`)
			return err
		}},
		{Name: "swallowed SQL error", Do: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1/0`)
			return err
		}},
		{Name: "SQL error healed by a savepoint", Do: func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT 1/0`)
				return err
			})
		}},
		{Name: "ROLLBACK TO a savepoint", Do: func(ctx context.Context, tx pgx.Tx) error {
			for _, sql := range []string{`SAVEPOINT mine`, `SELECT 1`, `ROLLBACK TO SAVEPOINT mine`} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		}},
		{Name: "connection closed", Do: func(ctx context.Context, tx pgx.Tx) error { return tx.Conn().Close(ctx) }},
		{Name: "backend terminated", Do: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}},
	}
}
