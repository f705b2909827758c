package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
)

// open implements cli.Config.Open.
func open(ctx context.Context, t cli.Target) (*cli.Database, error) {
	switch scheme, rest, _ := strings.Cut(t.DSN, "://"); {
	case t.DSN == "":
		return nil, cli.Usage(errors.New("no database: set --dsn or TXONCE_DSN"))
	case scheme == "postgres", scheme == "postgresql":
		return openPostgres(ctx, t)
	case scheme == "mysql", scheme == "mariadb":
		return openMySQL(ctx, t)
	case scheme == "sqlite":
		return openSQLite(ctx, t, rest)
	case rest != "":
		return nil, cli.Usage(fmt.Errorf("--dsn: unknown scheme %q: want postgres://, mysql:// or the path of an SQLite file", scheme))
	case strings.Contains(t.DSN, "host=") || strings.Contains(t.DSN, "dbname="):
		return openPostgres(ctx, t)
	}
	return openSQLite(ctx, t, t.DSN)
}

const connections = 4

func openPostgres(ctx context.Context, t cli.Target) (*cli.Database, error) {
	cfg, err := pgxpool.ParseConfig(t.DSN)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--dsn: %w", hidden(err, t.DSN)))
	}
	cfg.MaxConns = connections
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "txonce"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, Schema: t.Schema, Logger: quiet()})
	if err != nil {
		pool.Close()
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return &cli.Database{Dialect: "postgres", SQL: db, Store: store, Close: func() { _ = db.Close(); pool.Close() }}, nil
}

// quiet logs only what an operator must know: the workers log the rest.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func openMySQL(ctx context.Context, t cli.Target) (*cli.Database, error) {
	cfg, err := mysqlConfig(t.DSN)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("--dsn: %w", err)
	}
	return openSQL(ctx, sql.OpenDB(connector), sqlstore.MySQL, t.Schema)
}

// mysqlConfig reads mysql://user:password@host:port/database?parameters, with the parameters of go-sql-driver/mysql.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, cli.Usage(errors.New("--dsn: want mysql://user:password@host:port/database, with %-escapes in the password"))
	}
	address := u.Host
	if u.Port() == "" {
		address += ":3306"
	}
	cfg, err := mysql.ParseDSN("tcp(" + address + ")/?" + u.RawQuery)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--dsn: %w", err))
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	return cfg, nil
}

func openSQLite(ctx context.Context, t cli.Target, path string) (*cli.Database, error) {
	path, params, _ := strings.Cut(strings.TrimPrefix(path, "file:"), "?")
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("--dsn: %s is a directory", path)
	} else if err != nil && !t.Create {
		return nil, fmt.Errorf("--dsn: there is no SQLite file %s; txonce migrate up creates one", path)
	}
	values, err := url.ParseQuery(params)
	if err != nil {
		return nil, fmt.Errorf("--dsn: the parameters of %s: %w", path, err)
	}
	if t.Create {
		values.Add("_pragma", "journal_mode(wal)")
	}
	values.Add("_pragma", "busy_timeout(5000)")
	db, err := sql.Open("sqlite", "file:"+path+"?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, db, sqlstore.SQLite, t.Schema)
}

func openSQL(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, schema string) (*cli.Database, error) {
	db.SetMaxOpenConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, Schema: schema})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &cli.Database{Dialect: string(dialect), SQL: db, Store: store, Close: func() { _ = db.Close() }}, nil
}

// hidden returns an error without the DSN, which may have a password.
func hidden(err error, dsn string) error {
	return errors.New(strings.ReplaceAll(err.Error(), dsn, "…"))
}
