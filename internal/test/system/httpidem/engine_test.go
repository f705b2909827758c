package httpidem_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/system/engines"
)

// settings are the parts of a Config that tests of real databases change.
type settings struct {
	secrets      [][]byte
	wait         time.Duration
	conns        int
	serializable bool
	trace        *httpidem.Trace
}

// work is a handler on any database. exec runs a statement in its transaction.
type work func(ctx context.Context, exec func(sql string, args ...any) error, w http.ResponseWriter,
	r *http.Request) error

// node is a process with a Guard on a real database.
type node struct {
	handle func(work) http.Handler
	wrap   func(work) http.Handler
	peek   func(*http.Request) (bool, error)
	exec   func(ctx context.Context, sql string, args ...any) error // outside of any transaction
	count  func(ctx context.Context, sql string) (int, error)
	close  func()
}

// engine is a kind of database with Guards.
type engine struct {
	engines.Engine
	open func(ctx context.Context, dsn string, s settings) (*node, error)
}

var allEngines = []engine{
	{engines.Postgres, openPostgres},
	{engines.MariaDB, sqlNode(sqlstore.MySQL, engines.MariaDB.Driver)},
	{engines.MySQL, sqlNode(sqlstore.MySQL, engines.MySQL.Driver)},
	{engines.SQLite, sqlNode(sqlstore.SQLite, engines.SQLite.Driver)},
}

// eachEngine runs f as a subtest on each kind of database.
func eachEngine(t *testing.T, f func(t *testing.T, e engine)) {
	t.Parallel() // these tests mostly wait
	for _, e := range allEngines {
		if !matrix.RunsOn(e.Name, t.Name()) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("needs servers, or writes to disk")
			}
			f(t, e)
		})
	}
}

func openPostgres(ctx context.Context, dsn string, s settings) (*node, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(max(s.conns, 4))
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	isolation := pgx.ReadCommitted
	if s.serializable {
		isolation = pgx.Serializable
	}
	store, err := pgxstore.New(pgxstore.Config{
		Pool: pool, Isolation: isolation, ClaimTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	n, err := newNode(store, s, func(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	n.close = pool.Close
	n.exec = func(ctx context.Context, sql string, args ...any) error {
		_, err := pool.Exec(ctx, sql, args...)
		return err
	}
	n.count = func(ctx context.Context, sql string) (count int, err error) {
		err = pool.QueryRow(ctx, sql).Scan(&count)
		return count, err
	}
	return n, nil
}

func sqlNode(dialect sqlstore.Dialect, driver string) func(context.Context, string, settings) (*node, error) {
	return func(_ context.Context, dsn string, s settings) (*node, error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(max(s.conns, 4))
		isolation := sql.LevelDefault
		if s.serializable {
			isolation = sql.LevelSerializable
		}
		store, err := sqlstore.New(sqlstore.Config{
			DB: db, Dialect: dialect, Isolation: isolation,
			ClaimTimeout: time.Minute,
		})
		if err != nil {
			return nil, err
		}
		n, err := newNode(store, s, func(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		})
		if err != nil {
			return nil, err
		}
		n.close = func() { db.Close() }
		n.exec = func(ctx context.Context, query string, args ...any) error {
			_, err := db.ExecContext(ctx, query, args...)
			return err
		}
		n.count = func(ctx context.Context, query string) (count int, err error) {
			err = db.QueryRowContext(ctx, query).Scan(&count)
			return count, err
		}
		return n, nil
	}
}

func newNode[TTx any](store dedup.Store[TTx], s settings,
	exec func(ctx context.Context, tx TTx, sql string, args ...any) error,
) (*node, error) {
	if s.secrets == nil {
		s.secrets = [][]byte{secret("a")}
	}
	guard, err := httpidem.New(httpidem.Config[TTx]{
		Name: "api", Store: store, Secrets: s.secrets, Principal: byUser, Wait: s.wait, Trace: s.trace,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	handle := func(do work) httpidem.Handler[TTx] {
		return func(ctx context.Context, tx TTx, w http.ResponseWriter, r *http.Request) error {
			return do(ctx, func(sql string, args ...any) error { return exec(ctx, tx, sql, args...) }, w, r)
		}
	}
	return &node{
		peek:   guard.Peek,
		handle: func(do work) http.Handler { return guard.Handle(handle(do)) },
		wrap: func(do work) http.Handler {
			return guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tx, err := guard.Tx(r.Context())
				if err == nil {
					err = handle(do)(r.Context(), tx, w, r)
				}
				if err != nil {
					panic(err)
				}
			}))
		},
	}, nil
}

// node returns a node that is closed with the test.
func (e engine) node(t testing.TB, dsn string, s settings) *node {
	t.Helper()
	n, err := e.open(t.Context(), dsn, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

// order makes an effect and answers with 201 and what it got.
func (e engine) order(_ context.Context, exec func(string, ...any) error, w http.ResponseWriter,
	r *http.Request,
) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := exec(e.Insert, r.Header.Get("Idempotency-Key"), string(body)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	_, err = fmt.Fprintf(w, "ordered %s", body)
	return err
}
