package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/outbox/driver"
)

// Own locks the shards against other relays until the transaction of q ends, and fails if the hold has lost one of them.
func (d *DB) Own(ctx context.Context, q engine.Queryer, by *engine.Hold, tokens map[int]int64) error {
	if err := d.settings(ctx, q); err != nil {
		return err
	}
	numbers, with := columnsOfShards(slices.Sorted(maps.Keys(tokens)), tokens)
	var mine any
	var guard string
	err := q.QueryRowContext(ctx, d.box.relay.Check, uuid(by.Owner), arrayOf(numbers), arrayOf(with)).Scan(&mine, &guard)
	if err == nil && guard != "on" {
		return driver.ErrLeaseLost
	}
	return err
}

func (d *DB) Settle(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64, do *engine.Outcomes) error {
	settlement, err := pgrelay.NewSettlement(slices.Concat(do.Sent, do.Parked, do.Deferred, do.Paused))
	if err != nil {
		return err
	}
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	return sendSteps(ctx, tx, settlement.Steps(&d.box.relay, d.cfg.KeepSent > 0, do.Follow))
}
