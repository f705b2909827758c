//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql" // for testdb and database/sql
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/migrations"
)

// database is a PostgreSQL or MariaDB at a fixed address, with servers that take over from each other.
type database struct {
	kind        string
	clients     *gate
	replication *gate
	primary     server
}

func openDatabase(ctx context.Context, kind string) (d *database, err error) {
	d = &database{kind: kind}
	if d.clients, err = newGate(); err != nil {
		return nil, err
	}
	if d.replication, err = newGate(); err != nil {
		return nil, err
	}
	if d.primary, err = newServer(ctx, kind); err != nil {
		return nil, err
	}
	d.clients.Point(d.primary.At())
	db, err := sql.Open(d.driver(), d.DSN())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := migrations.Apply(ctx, db, kinds[kind], ""); err != nil {
		return nil, err
	}
	for _, statement := range []string{`CREATE TABLE effects (id varchar(100) NOT NULL)`, `CREATE INDEX effects_id ON effects (id)`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// DSN is the address of clients.
func (d *database) DSN() string { return dsn(d.kind, d.clients.Port) }

func (d *database) driver() string {
	if d.kind == mariadb {
		return "mysql"
	}
	return "pgx"
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
	d.replication.Point(d.primary.At())
	standby, err := d.primary.Standby(ctx, d.replication.Port)
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
	d.replication.Point(d.primary.At())
	backup, err := d.primary.Backup(ctx, d.replication.Port)
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
	d.clients.Point(d.primary.At())
	return nil
}

// end kills the primary.
func (d *database) end() {
	d.primary.Kill()
	d.clients.Cut()
}

func (d *database) replace(next server) {
	d.primary.Close()
	d.primary = next
	d.clients.Point(next.At())
}

// effects returns how many of the messages up to n have an effect, and how many effects all have.
func (d *database) effects(ctx context.Context, n int) (distinct, all int, err error) {
	// messageID needs no quotes
	err = d.query(ctx, `SELECT count(DISTINCT id), count(*) FROM effects WHERE id <= '`+messageID(n)+`'`, &distinct, &all)
	return distinct, all, err
}

// parked returns how many messages are parked.
func (d *database) parked(ctx context.Context) (n int, err error) {
	err = d.query(ctx, `SELECT count(*) FROM dead_letters`, &n)
	return n, err
}

func (d *database) query(ctx context.Context, query string, into ...any) error {
	db, err := sql.Open(d.driver(), dsn(d.kind, d.primary.At()))
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(ctx, query).Scan(into...)
}

func messageID(n int) string { return fmt.Sprintf("m%09d", n) }
