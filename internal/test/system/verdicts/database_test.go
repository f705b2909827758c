package verdicts_test

import (
	"context"
	"database/sql"
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
	"github.com/txonce/txonce/outbox"
)

// exec runs a statement of a handler.
type exec func(query string, args ...any) error

// handler is a handler for any database.
type handler func(ctx context.Context, run exec, m *consumer.Message) error

// worker is a consumer on any database.
type worker interface {
	consumer.Processor
	driver.BatchProcessor
	Start(ctx context.Context) error
	DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)
	Replay(ctx context.Context, letter consumer.DeadLetter, opts consumer.Replay) (ran bool, err error)
}

// settings vary a worker.
type settings struct {
	session   string             // parameters of the DSN, for the worker's sessions only
	isolation sql.IsolationLevel // of the store
	backoff   func(int) time.Duration
	idle      time.Duration // Config.IdleInTxTimeout
	log       io.Writer
	store     *any // gets the worker's store
}

// database is one with txonce's tables, a table hot with one row, and an empty table effects.
type database struct {
	name  string
	admin *sql.DB // its sessions have no limits
	start func(t *testing.T, handle handler, s settings) worker
	mark  func(n int) string // the n'th parameter of a statement
}

const (
	postgresTables = `CREATE TABLE hot (id int PRIMARY KEY, n int NOT NULL); INSERT INTO hot VALUES (1, 0);
		CREATE TABLE effects (name text NOT NULL)`
	mysqlTables = `CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO hot VALUES (1, 0);
		CREATE TABLE effects (name VARCHAR(255) NOT NULL)`
)

func pgxOn(t *testing.T, server string) *database {
	dsn := testdb.Tables(t, server, postgresTables)
	return &database{
		name: "pgxstore", admin: open(t, "pgx", dsn), mark: func(n int) string { return fmt.Sprint("$", n) },
		start: func(t *testing.T, handle handler, s settings) worker {
			cfg, err := pgxpool.ParseConfig(dsn + s.session)
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxConns = 80
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			store, err := pgxstore.New(pgxstore.Config{
				Pool: pool, Isolation: pgx.TxIsoLevel(strings.ToLower(strings.ReplaceAll(isolation(s), "-", " "))),
				Logger:          logger(s),
				IdleInTxTimeout: s.idle,
			})
			if err != nil {
				t.Fatal(err)
			}
			return newWorker(t, store, s, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				ctx = withEnqueue(ctx, store, tx)
				return handle(ctx, func(query string, args ...any) error {
					_, err := tx.Exec(ctx, query, args...)
					return err
				}, m)
			})
		},
	}
}

func isolation(s settings) string {
	if s.isolation == sql.LevelDefault {
		return "read committed"
	}
	return s.isolation.String()
}

func postgresOn(t *testing.T, server string) *database {
	dsn := testdb.Tables(t, server, postgresTables)
	return &database{
		name: "postgres", admin: open(t, "pgx", dsn), mark: func(n int) string { return fmt.Sprint("$", n) },
		start: sqlWorkers("pgx", dsn, sqlstore.Postgres),
	}
}

// mysqlOn is on MariaDB or on MySQL, as the test's name says.
func mysqlOn(t *testing.T) *database {
	dsn := testdb.MySQLTables(t, mysqlTables)
	name := "mariadb"
	if testdb.OnMySQL(t) {
		name = "mysql"
	}
	return &database{
		name: name, admin: open(t, "mysql", dsn), mark: func(int) string { return "?" },
		start: sqlWorkers("mysql", dsn, sqlstore.MySQL),
	}
}

func sqlite(t *testing.T) *database {
	dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)&_pragma=synchronous(full)"
	db := open(t, "sqlite", dsn)
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `CREATE TABLE hot (id INTEGER PRIMARY KEY, n INT NOT NULL)`, `INSERT INTO hot VALUES (1, 0)`,
		`CREATE TABLE effects (name TEXT NOT NULL)`)
	return &database{name: "sqlite", admin: db, mark: func(int) string { return "?" }, start: sqlWorkers("sqlite", dsn,
		sqlstore.SQLite)}
}

func sqlWorkers(driver, dsn string, dialect sqlstore.Dialect) func(t *testing.T, handle handler, s settings) worker {
	return func(t *testing.T, handle handler, s settings) worker {
		with := dsn + s.session
		if driver == "mysql" && s.session != "" {
			with = testdb.WithMySQL(t, dsn, s.session)
		}
		db := open(t, driver, with)
		db.SetMaxOpenConns(80)
		store, err := sqlstore.New(sqlstore.Config{
			DB: db, Dialect: dialect, Isolation: s.isolation,
			IdleInTxTimeout: s.idle,
		})
		if err != nil {
			t.Fatal(err)
		}
		return newWorker(t, store, s, func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			ctx = withEnqueue(ctx, store, tx)
			return handle(ctx, func(query string, args ...any) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			}, m)
		})
	}
}

type enqueueKey struct{}

// withEnqueue returns the ctx of a handler that may call enqueue.
func withEnqueue[TTx any](ctx context.Context, store outbox.Writer[TTx], tx TTx) context.Context {
	return context.WithValue(ctx, enqueueKey{}, func(id string) error {
		return store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: id, Payload: []byte("{}")})
	})
}

// enqueue enqueues a message in the handler's transaction.
func enqueue(ctx context.Context, id string) error {
	return ctx.Value(enqueueKey{}).(func(string) error)(id)
}

func newWorker[TTx any](t *testing.T, store dedup.Store[TTx], s settings, handle consumer.Handler[TTx]) worker {
	if s.store != nil {
		*s.store = store
	}
	c, err := consumer.New(consumer.Config[TTx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, Logger: logger(s), Backoff: s.backoff,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func logger(s settings) *slog.Logger {
	if s.log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(s.log, nil))
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(80)
	return db
}

func mustExec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// message returns a message that is new in each process.
func message(id string) *consumer.Message {
	return &consumer.Message{ID: id, Topic: "orders", Position: id, Payload: []byte("{}"), Time: time.Now()}
}

// effects returns how many rows the handler of id has committed.
func (d *database) effects(t *testing.T, id string) (n int) {
	t.Helper()
	if err := d.admin.QueryRowContext(t.Context(), `SELECT count(*) FROM effects WHERE name = `+d.mark(1),
		id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// letters returns the causes of the dead letters by key.
func letters(t *testing.T, w worker) map[string]string {
	t.Helper()
	found, err := w.DeadLetters(t.Context(), consumer.DeadLetterFilter{Consumer: "billing", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	causes := map[string]string{}
	for _, l := range found {
		causes[l.Record.Key.ID] = string(l.Cause) + ": " + l.Error
	}
	return causes
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// process gives messages to processes until all are decided: side in each of workers.
func process(ctx context.Context, workers []worker, side int, msgs []*consumer.Message) error {
	next := make(chan *consumer.Message)
	var done sync.WaitGroup
	errs := make(chan error, len(workers)*side)
	for _, w := range workers {
		for range side {
			done.Go(func() {
				for m := range next {
					if err := w.Process(ctx, m); err != nil {
						errs <- fmt.Errorf("%s: %w", m.ID, err)
						return
					}
				}
			})
		}
	}
	var err error
	for _, m := range msgs {
		select {
		case next <- m:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			break
		}
	}
	close(next)
	done.Wait()
	close(errs)
	for e := range errs {
		err = e
	}
	return err
}
