package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
)

// condition is a column of a table.
type condition struct {
	name  string
	conns int
	far   bool // over the longer network
}

var (
	loopback   = []condition{{"1 connection", 1, false}, {"8 connections", 8, false}}
	conditions = append(loopback[:2:2], condition{"1 connection, +0.5 ms", 1, true},
		condition{"8 connections, +0.5 ms", 8, true})
)

// insertEffect is what the handler of a message does.
const insertEffect = `INSERT INTO ledger (id, amount) VALUES ($1, 1)`

// world is a schema of its own, with the tables of txonce and those of the ways by hand.
type world struct {
	server *server
	schema string
	pool   *pgxpool.Pool
	store  *pgxstore.Store
	next   atomic.Int64
}

// inWorld runs fn in a new schema, which it removes afterwards.
func (s *server) inWorld(ctx context.Context, conns int, far bool, fn func(context.Context, *world) error) (err error) {
	w := &world{server: s, schema: fmt.Sprintf("bench_%x", time.Now().UnixNano())}
	if w.pool, err = s.connect(ctx, w.schema, conns, far); err != nil {
		return err
	}
	defer w.pool.Close()
	defer func() {
		_, dropped := w.pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+w.schema+" CASCADE")
		err = errors.Join(err, dropped)
	}()
	_, err = w.pool.Exec(ctx, `CREATE SCHEMA `+w.schema+`;
		CREATE TABLE ledger (id text NOT NULL, amount bigint NOT NULL);
		CREATE TABLE by_hand (consumer text, id text, processed_at timestamptz DEFAULT now(), PRIMARY KEY (consumer, id));`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	if err := pgxstore.Migrate(ctx, w.pool, ""); err != nil {
		return err
	}
	if w.store, err = w.newStore(pgxstore.Config{}); err != nil {
		return err
	}
	// Writes of the previous measurement must not reach the disk during this one.
	if _, err := w.pool.Exec(ctx, `CHECKPOINT`); err != nil {
		return err
	}
	return fn(ctx, w)
}

// inWorlds runs fn in n worlds that exist at the same time.
func (s *server) inWorlds(ctx context.Context, n, conns int, fn func(context.Context, []*world) error) error {
	if n == 0 {
		return fn(ctx, nil)
	}
	return s.inWorld(ctx, conns, false, func(ctx context.Context, w *world) error {
		return s.inWorlds(ctx, n-1, conns, func(ctx context.Context,
			more []*world,
		) error {
			return fn(ctx, append(more, w))
		})
	})
}

// newStore returns a store with a ClaimTimeout that suits a busy machine.
func (w *world) newStore(cfg pgxstore.Config) (*pgxstore.Store, error) {
	cfg.Pool, cfg.ClaimTimeout = w.pool, 2*time.Minute
	return pgxstore.New(cfg)
}

// oldPlace is in the IDs of messages that are handled before a measurement.
const oldPlace = 99

// id returns a new ID of 20 bytes, which begins with the place of the way that it is for.
func (w *world) id(way int) string { return fmt.Sprintf("%s-%013d", prefix(way), w.next.Add(1)) }

func prefix(way int) string { return fmt.Sprintf("way-%02d", way) }

// audit fails unless the ledger has exactly one row for each of the messages that a way has handled.
func (w *world) audit(ctx context.Context, name string, way int, messages int64) error {
	var rows, different int64
	err := w.pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT id) FROM ledger WHERE id LIKE $1 || '-%'`,
		prefix(way)).Scan(&rows, &different)
	if err == nil && (rows != messages || different != messages) {
		err = fmt.Errorf("%s handled %d messages, and wrote %d rows for %d of them", name, messages, rows, different)
	}
	return err
}
