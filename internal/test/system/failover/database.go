//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // for testdb

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// database is a PostgreSQL at a fixed address, with servers that take over from each other.
type database struct {
	clients     *gate
	replication *gate
	primary     *testdb.OwnPostgres
}

func openDatabase(ctx context.Context) (d *database, err error) {
	d = &database{}
	if d.clients, err = newGate(); err != nil {
		return nil, err
	}
	if d.replication, err = newGate(); err != nil {
		return nil, err
	}
	d.primary, err = testdb.NewPostgres(ctx, "wal_level=replica", "max_wal_senders=10", "shared_buffers=64MB")
	if err != nil {
		return nil, err
	}
	d.clients.Point(d.primary.Port)
	pool, err := pgxpool.New(ctx, d.DSN())
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := pgxstore.Migrate(ctx, pool, "public"); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE effects (id text NOT NULL); CREATE INDEX ON effects (id)`)
	return d, err
}

// DSN is the address of clients.
func (d *database) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable&connect_timeout=5", d.clients.Port)
}

func (d *database) Close() {
	d.clients.Close()
	d.replication.Close()
	if d.primary != nil {
		d.primary.Close()
	}
}

// failover lets an asynchronous standby take over that lacks what was committed during the last lag. meanwhile runs
// while the standby is replicating, and last before the primary is killed.
func (d *database) failover(ctx context.Context, lag time.Duration, meanwhile, last func() error) error {
	d.replication.Point(d.primary.Port)
	standby, err := d.primary.NewStandby(ctx, d.replication.Port)
	if err != nil {
		return fmt.Errorf("start a standby: %w", err)
	}
	if err := meanwhile(); err != nil {
		standby.Close()
		return err
	}
	d.replication.Cut()
	wait(ctx, lag)
	err = last()
	d.end()
	if err != nil {
		standby.Close()
		return err
	}
	if err := standby.Promote(ctx); err != nil {
		standby.Close()
		return fmt.Errorf("promote the standby: %w", err)
	}
	d.replace(standby)
	return nil
}

// backup lets a backup take over that was made before meanwhile ran.
func (d *database) backup(ctx context.Context, meanwhile func() error) error {
	backup, err := d.primary.NewBackup(ctx)
	if err != nil {
		return fmt.Errorf("make a backup: %w", err)
	}
	if err := meanwhile(); err != nil {
		backup.Close()
		return err
	}
	d.end()
	d.replace(backup)
	return nil
}

// restart kills the primary and starts it again.
func (d *database) restart(ctx context.Context) error {
	d.end()
	if err := d.primary.Start(ctx); err != nil {
		return err
	}
	d.clients.Point(d.primary.Port)
	return nil
}

// end kills the primary.
func (d *database) end() {
	d.primary.Kill()
	d.clients.Cut()
}

func (d *database) replace(next *testdb.OwnPostgres) {
	d.primary.Close()
	d.primary = next
	d.clients.Point(next.Port)
}

// effects returns how many of the messages up to n have an effect, and how many effects all have.
func (d *database) effects(ctx context.Context, n int) (distinct, all int, err error) {
	conn, err := pgx.Connect(ctx, d.primary.DSN)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT count(DISTINCT id), count(*) FROM effects WHERE id <= $1`, messageID(n)).
		Scan(&distinct, &all)
	return distinct, all, err
}

// parked returns how many messages are parked.
func (d *database) parked(ctx context.Context) (n int, err error) {
	conn, err := pgx.Connect(ctx, d.primary.DSN)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT count(*) FROM dead_letters`).Scan(&n)
	return n, err
}

func messageID(n int) string { return fmt.Sprintf("m%09d", n) }
