//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/internal/test/testdb"
)

const (
	postgres = "postgres"
	mariadb  = "mariadb"
)

// kinds are the kinds of databases, and their names in package migrations.
var kinds = map[string]string{postgres: "postgres", mariadb: "mysql"}

// server is one server of a database.
type server interface {
	At() int // its port
	// Standby starts an asynchronous standby, which connects to port.
	Standby(ctx context.Context, port int) (server, error)
	// Backup starts a server with what this one has committed by now. It may connect to port until then.
	Backup(ctx context.Context, port int) (server, error)
	Promote(ctx context.Context) error
	Start(ctx context.Context) error
	Kill()
	Close()
}

func newServer(ctx context.Context, kind string) (server, error) {
	if kind == mariadb {
		m, err := testdb.NewMariaDB(ctx)
		if err != nil {
			return nil, err
		}
		return maria{m}, m.Exec(ctx, "CREATE DATABASE app")
	}
	p, err := testdb.NewPostgres(ctx, "wal_level=replica", "max_wal_senders=10", "shared_buffers=64MB")
	return pg{p}, err
}

// dsn is the address of the database on the server at port.
func dsn(kind string, port int) string {
	if kind == mariadb {
		return fmt.Sprintf("root@tcp(127.0.0.1:%d)/app?parseTime=true&timeout=5s", port)
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable&connect_timeout=5", port)
}

type pg struct{ *testdb.OwnPostgres }

func (p pg) At() int { return p.Port }

func (p pg) Standby(ctx context.Context, port int) (server, error) {
	standby, err := p.NewStandby(ctx, port)
	return pg{standby}, err
}

func (p pg) Backup(ctx context.Context, _ int) (server, error) {
	backup, err := p.NewBackup(ctx)
	return pg{backup}, err
}

type maria struct{ *testdb.OwnMariaDB }

func (m maria) At() int { return m.Port }

func (m maria) Standby(ctx context.Context, port int) (server, error) {
	replica, err := m.NewReplica(ctx, port)
	return maria{replica}, err
}

// Backup makes a replica that stops to replicate at once.
func (m maria) Backup(ctx context.Context, port int) (server, error) {
	replica, err := m.NewReplica(ctx, port)
	if err == nil {
		err = replica.Promote(ctx)
	}
	return maria{replica}, err
}
