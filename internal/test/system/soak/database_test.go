package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// database is one of the four databases.
type database struct {
	places []place             // with separate tables; the first one is for the application
	node   func() node         // makes a store, a pool and a consumer like those of another process
	kill   func() (int, error) // ends a few of the nodes' connections; nil: there are no connections
	used   func(t *testing.T)  // fails the test if the variant's way was not used; nil: nothing to see
}

// place is a schema or database with txonce's and the application's tables. Handlers should write only to the first
// one.
type place struct{ db *sql.DB }

type node interface {
	driver.BatchProcessor
	DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)
}

// acts are the statements of a database's handlers.
type acts[TTx any] struct {
	exec    func(ctx context.Context, tx TTx, query string, args ...any) error
	commit  func(ctx context.Context, tx TTx) error
	leave   func(ctx context.Context, tx TTx) error // a query whose rows are not closed
	effect  string
	fails   string // a statement that fails
	commits string // ends the transaction
	session []string
	cut     string // ends the connection; empty: not possible
	queues  bool   // exec sends a statement only after the handler has returned nil
	handled *handled
}

// handled counts how often each message's handler ran on all nodes.
type handled struct {
	mu   sync.Mutex
	runs map[string]int
}

func (h *handled) next(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id]++
	return h.runs[id]
}

// handle does what the message's kind requires.
func (a acts[TTx]) handle(ctx context.Context, tx TTx, id string, k kind) error {
	run := a.handled.next(id)
	effect := func() error { return a.exec(ctx, tx, a.effect, id) }
	switch k {
	case transient:
		if err := effect(); err != nil || run == 1 {
			return errors.Join(err, errors.New("transient fault"))
		}
		return nil
	case permanent:
		return errors.Join(effect(), errors.New("permanent fault"))
	case panics:
		_ = effect()
		panic("planned")
	case hangs:
		_ = effect()
		<-ctx.Done()
		return context.Cause(ctx)
	case swallows:
		err := effect()
		_ = a.exec(ctx, tx, a.fails)
		return err
	case leavesRows:
		err := effect()
		_ = a.leave(ctx, tx)
		return err
	case session:
		if err := effect(); err != nil {
			return err
		}
		_ = a.exec(ctx, tx, a.session[run%len(a.session)])
		return nil
	case commits:
		_ = effect()
		_ = a.commit(ctx, tx)
		return nil
	case commitText:
		_ = effect()
		_ = a.exec(ctx, tx, a.commits)
		if run%2 == 0 {
			return errors.New("failed behind its own COMMIT")
		}
		return nil
	case rollsBack:
		_ = a.exec(ctx, tx, "ROLLBACK")
		_ = effect()
		return nil
	case cuts:
		if run == 1 && a.queues {
			return a.exec(ctx, tx, a.cut)
		}
		if run == 1 && a.cut != "" {
			return errors.Join(a.exec(ctx, tx, a.cut), errors.New("the connection is cut"))
		}
	case well:
	}
	return effect()
}

// newNode returns a consumer on store, with the settings of vary.
func newNode[TTx any](t *testing.T, store dedup.Store[TTx], kinds map[string]kind, a acts[TTx],
	vary func(*consumer.Config[TTx]),
) node {
	t.Helper()
	cfg := consumer.Config[TTx]{
		Name: "soak", Store: store, Key: consumer.MessageID,
		Handle: func(ctx context.Context, tx TTx, msg *consumer.Message) error {
			return a.handle(ctx, tx, msg.ID, kinds[msg.ID])
		},
		HandlerTimeout: 300 * time.Millisecond,
		Backoff:        func(attempt int) time.Duration { return time.Duration(min(attempt, 20)) * 5 * time.Millisecond },
		ParkLimit:      consumer.ParkLimit{Unlimited: true},
		Logger:         logger(),
	}
	vary(&cfg)
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(16) // a new connection costs the server more than most statements do
	return db
}

// newPlace makes the tables in a separate database or schema.
func newPlace(t *testing.T, driver, dsn, dialect, effects string) place {
	t.Helper()
	p := place{openDB(t, driver, dsn)}
	if err := migrations.Apply(t.Context(), p.db, dialect, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.db.Exec(effects); err != nil {
		t.Fatal(err)
	}
	return p
}

// logger shows the logs of consumers and stores with -soak.log. By default it drops them, because connections are cut
// all the time.
func logger() *slog.Logger {
	if *logged {
		return slog.Default()
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func execSQL(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

func leaveSQL(query string) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query) //nolint:rowserrcheck,sqlclosecheck // this handler leaves its rows open
		if err == nil {
			rows.Next()
		}
		return err
	}
}

const (
	postgresEffects = `CREATE TABLE effects (name text NOT NULL)`
	postgresKill    = `SELECT count(pg_terminate_backend(pid)) FROM (
	SELECT pid FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 2) AS chosen`
)

// postgresSession are statements whose settings would affect the next claim if the connection returned to its pool
// unchanged.
func postgresSession(other string) []string {
	return []string{
		"SET search_path = " + other, "SET synchronous_commit = off", "SET ROLE pg_read_all_data",
		"SELECT set_config('search_path', '" + other + "', false)", "SET lock_timeout = 1",
		"CREATE TEMP TABLE processed_messages (key uuid PRIMARY KEY)",
		"SET statement_timeout = '2min'", "SET default_transaction_isolation = 'serializable'",
	}
}

func schemaOf(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRow(`SELECT current_schema()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// pgxDatabase returns a database whose consumers vary changes.
func pgxDatabase(t *testing.T, kinds map[string]kind, vary func(*consumer.Config[pgx.Tx], acts[pgx.Tx])) database {
	dsn, other := testdb.Schema(t, testdb.Postgres(t)), testdb.Schema(t, testdb.Postgres(t))
	d := database{places: []place{
		newPlace(t, "pgx", dsn, "postgres", postgresEffects), newPlace(t, "pgx", other, "postgres", postgresEffects),
	}}
	app := "soak " + schemaOf(t, d.places[0].db)
	a := acts[pgx.Tx]{
		exec: func(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		},
		commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		leave: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`) //nolint:sqlclosecheck // this handler leaves its rows open
			return err
		},
		effect: `INSERT INTO effects (name) VALUES ($1)`, fails: `SELECT 1/0`, commits: `SELECT 1; COMMIT`,
		session: postgresSession(schemaOf(t, d.places[1].db)), cut: `SELECT pg_terminate_backend(pg_backend_pid())`,
		handled: &handled{runs: map[string]int{}},
	}
	d.node = func() node {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = 8
		cfg.ConnConfig.RuntimeParams["application_name"] = app
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		store, err := pgxstore.New(pgxstore.Config{Pool: pool, Logger: logger()})
		if err != nil {
			t.Fatal(err)
		}
		return newNode(t, store, kinds, a, func(cfg *consumer.Config[pgx.Tx]) { vary(cfg, a) })
	}
	d.kill = func() (n int, err error) {
		err = d.places[0].db.QueryRow(postgresKill, app).Scan(&n)
		return n, err
	}
	return d
}

func postgresDatabase(t *testing.T, kinds map[string]kind, vary func(*consumer.Config[*sql.Tx])) database {
	dsn, other := testdb.Schema(t, testdb.Postgres18(t)), testdb.Schema(t, testdb.Postgres18(t))
	d := database{places: []place{
		newPlace(t, "pgx", dsn, "postgres", postgresEffects), newPlace(t, "pgx", other, "postgres", postgresEffects),
	}}
	app := "soak_" + schemaOf(t, d.places[0].db)
	d.node = sqlNode(t, "pgx", dsn+"&application_name="+app, sqlstore.Postgres, kinds, vary, acts[*sql.Tx]{
		leave:  leaveSQL(`SELECT generate_series(1, 100000)`),
		effect: `INSERT INTO effects (name) VALUES ($1)`, fails: `SELECT 1/0`, commits: `COMMIT`,
		session: postgresSession(schemaOf(t, d.places[1].db)), cut: `SELECT pg_terminate_backend(pg_backend_pid())`,
	})
	d.kill = func() (n int, err error) {
		err = d.places[0].db.QueryRow(postgresKill, app).Scan(&n)
		return n, err
	}
	return d
}

func mysqlDatabase(t *testing.T, kinds map[string]kind, vary func(*consumer.Config[*sql.Tx])) database {
	const effects = `CREATE TABLE effects (name VARCHAR(64) NOT NULL) ENGINE = InnoDB`
	dsn, other := testdb.MySQL(t), testdb.MySQL(t)
	d := database{places: []place{newPlace(t, "mysql", dsn, "mysql", effects), newPlace(t, "mysql", other, "mysql", effects)}}
	var here, there string
	for i, name := range []*string{&here, &there} {
		if err := d.places[i].db.QueryRow(`SELECT DATABASE()`).Scan(name); err != nil {
			t.Fatal(err)
		}
	}
	d.node = sqlNode(t, "mysql", dsn, sqlstore.MySQL, kinds, vary, acts[*sql.Tx]{
		leave:  leaveSQL(`SELECT 1 FROM information_schema.columns AS a CROSS JOIN information_schema.columns AS b LIMIT 100000`),
		effect: `INSERT INTO effects (name) VALUES (?)`, fails: `SELECT * FROM missing_column_of.effects`,
		commits: `CREATE TABLE IF NOT EXISTS made (n INT)`,
		session: []string{
			"USE " + there, "SET autocommit = 1", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			"SET sql_mode = ''",
			"SET innodb_lock_wait_timeout = 1", "SET foreign_key_checks = 0",
		},
		cut: `KILL CONNECTION_ID()`,
	})
	d.kill = func() (int, error) {
		rows, err := d.places[1].db.Query(`SELECT id FROM `+testdb.MySQLSessions(t)+
			` WHERE db = ? AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 2`, here)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		var ids []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return 0, err
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
		for _, id := range ids {
			// A connection that has already ended is no failure.
			if _, err := d.places[1].db.Exec(fmt.Sprintf(`KILL %d`, id)); err != nil && !strings.Contains(err.Error(),
				"1094") {
				return 0, err
			}
		}
		return len(ids), nil
	}
	return d
}

func sqliteDatabase(t *testing.T, kinds map[string]kind, vary func(*consumer.Config[*sql.Tx])) database {
	dsn := "file:" + filepath.Join(t.TempDir(), "soak.db") + "?_pragma=journal_mode(wal)"
	d := database{places: []place{newPlace(t, "sqlite", dsn+"&_pragma=busy_timeout(10000)", "sqlite", `CREATE TABLE effects (name TEXT NOT NULL)`)}}
	d.node = sqlNode(t, "sqlite", dsn, sqlstore.SQLite, kinds, vary, acts[*sql.Tx]{
		leave:  leaveSQL(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n`),
		effect: `INSERT INTO effects (name) VALUES (?)`, fails: `SELECT missing FROM effects`, commits: `COMMIT`,
		session: []string{
			"PRAGMA foreign_keys = 1", "PRAGMA cache_size = 10", "PRAGMA locking_mode = exclusive",
			"CREATE TEMP TABLE processed_messages (key BLOB PRIMARY KEY)",
		},
	})
	return d
}

func sqlNode(t *testing.T, driver, dsn string, dialect sqlstore.Dialect, kinds map[string]kind,
	vary func(*consumer.Config[*sql.Tx]), a acts[*sql.Tx],
) func() node {
	a.exec, a.handled = execSQL, &handled{runs: map[string]int{}}
	a.commit = func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }
	return func() node {
		db := openDB(t, driver, dsn)
		db.SetMaxOpenConns(8)
		store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect})
		if err != nil {
			t.Fatal(err)
		}
		return newNode(t, store, kinds, a, vary)
	}
}
