package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	case strings.Contains(t.DSN, "@tcp(") || strings.Contains(t.DSN, "@unix(") || strings.Contains(t.DSN, "@/"):
		// as go-sql-driver has it
		return nil, cli.Usage(errors.New("--dsn: want mysql://user:password@host:port/database"))
	case rest != "":
		return nil, cli.Usage(fmt.Errorf("--dsn: unknown scheme %q: want postgres://, mysql:// or the path of an SQLite file", scheme))
	case keywords.MatchString(t.DSN):
		return openPostgres(ctx, t)
	}
	return openSQLite(ctx, t, t.DSN)
}

// keywords begin a DSN of PostgreSQL that is no URL.
var keywords = regexp.MustCompile(`(^|\s)(host|hostaddr|port|dbname|database|user|password|service)\s*=`)

const connections = 4

// claimTimeout is how long an import waits for a key that a consumer holds; meanwhile it holds keys itself.
const claimTimeout = 2 * time.Second

func openPostgres(ctx context.Context, t cli.Target) (*cli.Database, error) {
	cfg, err := pgxpool.ParseConfig(t.DSN)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--dsn: %w", hidden(err)))
	}
	to := cfg.ConnConfig
	name := fmt.Sprintf("PostgreSQL database %s at %s:%d", to.Database, to.Host, to.Port)
	cfg.MaxConns = connections
	if !strings.Contains(t.DSN, "default_query_exec_mode") {
		// prepared statements fail behind a pooler, and a command hardly repeats one
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
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
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, Schema: t.Schema, Logger: quiet(), ClaimTimeout: claimTimeout})
	if err != nil {
		pool.Close()
		return nil, cli.Usage(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	return &cli.Database{
		Dialect: "postgres", Name: name, SQL: db, Store: store, Claims: cli.ClaimsOf(store),
		Close: func() { _ = db.Close(); pool.Close() },
	}, nil
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
		return nil, cli.Usage(fmt.Errorf("--dsn: %w", err))
	}
	return openSQL(ctx, sql.OpenDB(connector), sqlstore.MySQL, t.Schema, fmt.Sprintf("MySQL database %s at %s",
		cfg.DBName, cfg.Addr))
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

// openSQLite opens path, or the URI file:path with escapes. Parameters may follow either.
func openSQLite(ctx context.Context, t cli.Target, path string) (*cli.Database, error) {
	path, params, _ := strings.Cut(path, "?")
	if uri, ok := strings.CutPrefix(path, "file:"); ok {
		var err error
		if path, err = url.PathUnescape(uri); err != nil {
			return nil, cli.Usage(fmt.Errorf("--dsn: %w", err))
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, cli.Usage(fmt.Errorf("--dsn: %s is a directory", path))
	case err != nil && !t.Create:
		return nil, fmt.Errorf("--dsn: there is no SQLite file %s; txonce migrate up creates one", path)
	}
	values, err := url.ParseQuery(params)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--dsn: the parameters of %s: %w", path, err))
	}
	if t.Create && (info == nil || info.Size() == 0) {
		// a database that exists keeps the mode that its owner has chosen
		values.Add("_pragma", "journal_mode(wal)")
	}
	if !strings.Contains(params, "busy_timeout") {
		values.Add("_pragma", "busy_timeout(5000)")
	}
	db, err := sql.Open("sqlite", "file:"+escapePath.Replace(path)+"?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, db, sqlstore.SQLite, t.Schema, "SQLite file "+path)
}

// escapePath escapes what has a meaning in a URI of SQLite.
var escapePath = strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f")

func openSQL(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, schema, name string) (*cli.Database, error) {
	db.SetMaxOpenConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, Schema: schema, ClaimTimeout: claimTimeout})
	if err != nil {
		_ = db.Close()
		return nil, cli.Usage(err)
	}
	return &cli.Database{
		Dialect: string(dialect), Name: name, SQL: db, Store: store, Claims: cli.ClaimsOf(store),
		Close: func() { _ = db.Close() },
	}, nil
}

// hidden returns an error of pgx about a DSN without the DSN. pgx hides passwords in it as well as it can, but it
// cannot tell what the password is when the DSN is wrong.
func hidden(err error) error {
	wrong, ok := errors.AsType[*pgconn.ParseConfigError](err)
	if !ok {
		return errors.New("it cannot be parsed")
	}
	begin := (&pgconn.ParseConfigError{ConnString: wrong.ConnString}).Error() // with only the DSN
	text, ok := strings.CutPrefix(wrong.Error(), begin)
	if !ok {
		return errors.New("it cannot be parsed")
	}
	return errors.New(text + "; want postgres://user:password@host:port/database, with %-escapes in the password, or host=… user=… dbname=…")
}
