//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
)

// box is the outbox in one of the modes.
type box struct {
	store *pgxstore.Store
	pool  *pgxpool.Pool
	wal   bool
}

// openOutbox is what every process does, with the same configuration.
func openOutbox(mode string, pool *pgxpool.Pool) (*box, error) {
	cfg := map[string]pgxstore.OutboxConfig{
		"table":  {Mode: pgxstore.OutboxTable},
		"rotate": {Mode: pgxstore.OutboxRotating, RotateEvery: 2 * time.Second}, // often, so that faults fall into it
		"wal":    {Mode: pgxstore.OutboxWAL},
	}[mode]
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, Outbox: cfg})
	if err != nil {
		return nil, err
	}
	return &box{store: store, pool: pool, wal: cfg.Mode == pgxstore.OutboxWAL}, nil
}

// create makes what the mode needs beside the tables.
func (b *box) create(ctx context.Context) error {
	if !b.wal {
		return nil
	}
	return b.store.CreateOutboxSlot(ctx)
}

// pending is every row that the database still holds, whatever it waits for, by the tables themselves. What is only in the
// write-ahead log the store says.
func (b *box) pending(ctx context.Context) (n int64, err error) {
	err = b.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM outbox_messages) + (SELECT count(*) FROM outbox_delayed) + (SELECT count(*) FROM outbox_parked)`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count what is pending: %w", err)
	}
	if b.wal && n == 0 {
		stats, err := b.store.Stats(ctx)
		if err != nil {
			return 0, err
		}
		n = stats.Pending
	}
	return n, nil
}

// Close removes what create has made. The relays have ended.
func (b *box) Close(ctx context.Context) error {
	if !b.wal {
		return nil
	}
	rows, err := b.pool.Query(ctx, `SELECT slot FROM txonce_slots WHERE slot IS NOT NULL`)
	if err != nil {
		return err
	}
	slots, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := b.drop(ctx, slot); err != nil {
			return fmt.Errorf("drop slot %s: %w", slot, err)
		}
		if _, err := b.pool.Exec(ctx, `DROP PUBLICATION IF EXISTS `+pgx.Identifier{slot}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// drop waits until the server has noticed that nobody reads slot.
func (b *box) drop(ctx context.Context, slot string) error {
	for {
		_, err := b.pool.Exec(ctx, `
			SELECT CASE WHEN active THEN pg_terminate_backend(active_pid) END FROM pg_replication_slots WHERE slot_name = $1`, slot)
		if err == nil {
			_, err = b.pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, slot)
		}
		if err == nil || sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}
