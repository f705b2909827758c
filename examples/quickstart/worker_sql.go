package main

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore"
)

// workOnSQL charges orders through database/sql, in PostgreSQL, MySQL or SQLite. Only the store differs from worker.go.
func workOnSQL(ctx context.Context, w workerConfig, charge handler[*sql.Tx]) error {
	db, err := sql.Open(w.Driver, w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxIdleConns(16) // the default is 2; a new connection costs a server more than a message
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: w.Dialect})
	if err != nil {
		return err
	}
	return work(ctx, w, store, charge)
}
