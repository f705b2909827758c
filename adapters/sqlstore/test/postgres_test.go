package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// TestPostgres runs each case once on each version, with this store or with pgxstore.
func TestPostgres(t *testing.T) {
	t.Parallel()
	for _, server := range []struct {
		name     string
		dsn      func(testing.TB) string
		selected func(name, level string) bool
	}{
		{"15", testdb.Postgres, isolations.Share(3, 2)},
		{"18", testdb.Postgres18, isolations.Share(2, 2)},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel() // these tests mostly wait
			deduptest.TestStore(t, deduptest.Harness[*sql.Tx]{
				New:        func(t *testing.T) deduptest.DB[*sql.Tx] { return newPostgresDB(t, server.dsn(t)) },
				Isolations: isolations,
				Select:     server.selected,
				Codes:      deduptest.PostgresCodes(),
			})
		})
	}
}

var (
	levels     = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	isolations = matrix.Levels{levels[0].String(), levels[1].String(), levels[2].String()}
)

// level returns the isolation level with this name.
func level(name string) sql.IsolationLevel {
	for _, l := range levels {
		if l.String() == name {
			return l
		}
	}
	return sql.LevelDefault
}

// postgresDB is a schema under test.
type postgresDB struct {
	dsn  string
	db   *sql.DB
	kept bool // other tests use the connections again
}

// postgresPlace opens the databases of a test.
type postgresPlace struct {
	dsn     string
	another func(t *testing.T) string                    // an empty database
	forgets func(t *testing.T) string                    // the same database, with asynchronous commits
	faulty  func(t *testing.T, f deduptest.Fault) string // the same database, where fault f hits a COMMIT
}

func newPostgresDB(t *testing.T, server string) deduptest.DB[*sql.Tx] {
	dsn := testdb.Reused(t, server, suiteTables)
	return newPostgresDBAt(t, postgresPlace{
		dsn:     dsn,
		another: func(t *testing.T) string { return testdb.Schema(t, server) },
		forgets: func(*testing.T) string { return dsn + "&synchronous_commit=off" },
		faulty:  func(t *testing.T, f deduptest.Fault) string { return wireproxy.Postgres(t, dsn, f) },
	})
}

func newPostgresDBAt(t *testing.T, at postgresPlace) deduptest.DB[*sql.Tx] {
	d := &postgresDB{dsn: at.dsn, db: keptDB(t, "pgx", at.dsn), kept: true}
	return deduptest.DB[*sql.Tx]{
		Open: func(t *testing.T, o deduptest.Options) dedup.Store[*sql.Tx] { return d.open(t, d.dsn, o) },
		Tx: func(ctx context.Context, o deduptest.Options, fn func(*sql.Tx) error) error {
			return inTx(ctx, d.db, &sql.TxOptions{Isolation: level(o.Isolation)}, fn)
		},
		Effect:   effect(`INSERT INTO effects (name) VALUES ($1)`),
		Effects:  func(t *testing.T) []string { return stringsOf(t, d.db, `SELECT name FROM effects`) },
		Age:      d.age,
		SetClock: func(s dedup.Store[*sql.Tx], now func() time.Time) { s.(*node).SetClock(now) },
		Misuse:   postgresMisuses(),
		Raise: func(ctx context.Context, tx *sql.Tx, code string) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '%s'; END $$`, code))
			return err
		},
		RaiseAtCommit: func(ctx context.Context, tx *sql.Tx, code string) error {
			for _, q := range testdb.FailAtCommit(code) {
				if _, err := tx.ExecContext(ctx, q); err != nil {
					return err
				}
			}
			return nil
		},
		Lock: func(ctx context.Context, tx *sql.Tx, name string) error {
			if _, err := d.db.ExecContext(ctx, `INSERT INTO locks (name) VALUES ($1) ON CONFLICT DO NOTHING`,
				name); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `SELECT FROM locks WHERE name = $1 FOR UPDATE`, name)
			return err
		},
		LockWait: func(ctx context.Context, tx *sql.Tx) (wait string, err error) {
			err = tx.QueryRowContext(ctx, `SHOW lock_timeout`).Scan(&wait)
			return wait, err
		},
		Wrote: func(ctx context.Context, tx *sql.Tx) (yes bool, err error) {
			err = tx.QueryRowContext(ctx, `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&yes)
			return yes, err
		},
		Plant: func(t *testing.T, at dedup.KeyHash, k dedup.Key) {
			exec(t, d.db, `INSERT INTO processed_messages (key, expires_at, consumer, tenant, id) VALUES ($1, now() + interval '1 day', $2, nullif($3, ''), $4)`,
				fmt.Sprintf("%x", at), k.Consumer, k.Tenant, k.ID)
		},
		RegisterSource: registerSource(d.db, `INSERT INTO txonce_sources (consumer, source) VALUES ($1, ''), ($2, $3)`,
			serverID["postgres"],
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY(pg_blocking_pids(pid)))`),
		Connections: func(_ *testing.T, s dedup.Store[*sql.Tx]) int { return s.(*node).db.Stats().InUse },
		Faulty: func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[*sql.Tx] {
			return d.open(t, at.faulty(t, f), o)
		},
		NoSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			return d.open(t, at.another(t), deduptest.Options{})
		},
		OldSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			exec(t, d.db, `UPDATE txonce_schema SET version = version + 100, works_with = works_with + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NewerSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			exec(t, d.db, `UPDATE txonce_schema SET version = version + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NotDurable: func(t *testing.T) dedup.Store[*sql.Tx] {
			return d.open(t, at.forgets(t), deduptest.Options{})
		},
	}
}

func openPostgres(t testing.TB, server string) *postgresDB {
	dsn := testdb.Reused(t, server, suiteTables)
	return &postgresDB{dsn: dsn, db: openDB(t, "pgx", dsn)}
}

const suiteTables = `CREATE TABLE effects (name text NOT NULL); CREATE TABLE locks (name text PRIMARY KEY)`

// openPostgresAt makes the tables where dsn leads to.
func openPostgresAt(t testing.TB, dsn string) *postgresDB {
	d := &postgresDB{dsn: dsn, db: openDB(t, "pgx", dsn)}
	exec(t, d.db, testdb.PostgresTables(t, suiteTables))
	return d
}

func (d *postgresDB) open(t testing.TB, dsn string, o deduptest.Options) *node {
	open := openDB
	if d.kept && dsn == d.dsn {
		open = keptDB
	}
	db := open(t, "pgx", dsn)
	db.SetMaxOpenConns(16)
	return newNode(t, db, sqlstore.Config{
		Dialect: sqlstore.Postgres, Isolation: level(o.Isolation), ClaimTimeout: o.Wait, Compact: o.Compact,
	})
}

func (d *postgresDB) age(t *testing.T, by time.Duration) {
	for _, q := range []string{
		`UPDATE processed_messages SET expires_at = expires_at - $1::interval`,
		`UPDATE txonce_windows SET first_run = first_run - $1::interval, used_until = used_until - $1::interval`,
		`UPDATE txonce_sweep SET forgotten_until = forgotten_until - $1::interval, lease_until = lease_until - $1::interval`,
		`UPDATE operator_actions SET next_at = next_at - $1::interval`,
	} {
		exec(t, d.db, q, fmt.Sprintf("%d microseconds", by.Microseconds()))
	}
}

// postgresMisuses returns all ways for a handler to end or lose its transaction on PostgreSQL.
func postgresMisuses() []deduptest.Misuse[*sql.Tx] {
	return append(misuses(),
		text("ROLLBACK AND CHAIN as text", true, `ROLLBACK AND CHAIN`),
		text("COMMIT AND CHAIN as text", true, `COMMIT AND CHAIN`),
		unstoppable("ABORT in a string of statements", `SELECT 1; ABORT`),
		text("swallowed SQL error", false, `SELECT 1/0`),
		text("SQL error healed by a savepoint", false, `SAVEPOINT mine`, `SELECT 1/0`, `ROLLBACK TO mine`),
		text("backend terminated", false, `SELECT pg_terminate_backend(pg_backend_pid())`),
		deduptest.Misuse[*sql.Tx]{Name: "rows left open", Do: func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, `SELECT generate_series(1, 100000)`) //nolint:sqlclosecheck // left open on purpose
			if err != nil {
				return err
			}
			rows.Next()
			return rows.Err()
		}},
	)
}
