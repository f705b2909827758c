package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/migrations"
)

// open opens the database and makes missing tables. Without a file and a dsn it is a temporary SQLite file.
func open(ctx context.Context, file, dsn string) (db *sql.DB, dialect sqlstore.Dialect, closeDB func(), err error) {
	if file != "" && dsn != "" {
		return nil, dialect, nil, errors.New("-sqlite and -postgres: want one of them")
	}
	driver, kind, dir := "pgx", "postgres", ""
	dialect = sqlstore.Postgres
	if dsn == "" {
		if file == "" {
			if dir, err = os.MkdirTemp("", "http-api"); err != nil {
				return nil, dialect, nil, err
			}
			file = filepath.Join(dir, "orders.db")
		}
		// WAL: readers do not wait for the writer. FULL: a power loss undoes no commit.
		dsn = (&url.URL{Scheme: "file", Opaque: file}).String() +
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
		driver, kind, dialect = "sqlite", "sqlite", sqlstore.SQLite
	}
	if db, err = sql.Open(driver, dsn); err != nil {
		return nil, dialect, nil, err
	}
	db.SetMaxOpenConns(20) // the Guard uses three quarters of them at most
	db.SetMaxIdleConns(20) // the default is 2; a new connection costs a server more than a request
	closeDB = func() {
		db.Close()
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	if err := makeTables(ctx, db, kind); err != nil {
		closeDB()
		return nil, dialect, nil, err
	}
	return db, dialect, closeDB, nil
}

func makeTables(ctx context.Context, db *sql.DB, kind string) error {
	if err := migrations.Apply(ctx, db, kind, ""); err != nil {
		// or apply the files of package migrations with your own tool
		return err
	}
	for _, table := range []string{
		`CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, orders_left bigint NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, account text NOT NULL, item text NOT NULL, cents bigint NOT NULL, charge text NOT NULL)`,
	} {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}

func (a *api) addAccount(ctx context.Context, name string, orders int) error {
	_, err := a.db.ExecContext(ctx, `INSERT INTO accounts (name, orders_left) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		name, orders)
	return err
}

func queryOrders(ctx context.Context, db *sql.DB, account string) (orders []order, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, item, cents FROM orders WHERE account = $1 ORDER BY id`, account)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.ID, &o.Item, &o.Cents); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}
