package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/adapters/sqlstore"
)

// serveDashboard shows the run in browsers of this machine, at an address such as 127.0.0.1:7070, until ctx ends. wait
// waits for that.
func serveDashboard(ctx context.Context, address string, d *database, say *terminal) (wait func() error, err error) {
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Dialect(d.dialect)})
	if err != nil {
		return nil, err
	}
	board, err := dashboard.New(dashboard.Config{
		Store: store.Operator(), Activity: store.Activity(),
		Authorize: anybodyHere, Title: "quickstart",
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	say.print("the dashboard is at http://%s/", l.Addr())
	served := make(chan error, 1)
	go func() {
		defer db.Close()
		served <- dashboard.Serve(ctx, l, board)
	}()
	return func() error { return <-served }, nil
}

// anybodyHere lets every user of this machine see and do everything, because the data is a demo's. A service asks its
// own session instead.
func anybodyHere(r *http.Request, _ dashboard.Permission) (who string, err error) {
	if _, err := dashboard.Loopback(r, dashboard.View); err != nil {
		return "", err
	}
	return "quickstart", nil
}
