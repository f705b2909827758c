package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

func (d *DB) Renew(ctx context.Context, tx *sql.Tx, by *engine.Hold) (share shares.State, err error) {
	query, args := d.box.Begin, []any{by.Hex(), []byte(by.Name), engine.CeilMicros(by.TTL)}
	if by.Begun {
		query, args = d.box.Extend, []any{engine.CeilMicros(by.TTL), by.Hex()}
	}
	if err := d.applySettings(ctx, tx); err != nil {
		return share, err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return share, err
	}
	if err := d.alive(ctx, tx, by); err != nil {
		return share, err
	}
	ahead, err := engine.Column[engine.KeyHash](engine.Query(ctx, tx, d.box.Ahead))
	if err == nil && len(ahead) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Restart, engine.KeyList(ahead))
	}
	if err != nil {
		return share, err
	}
	share = shares.NewState()
	if err := engine.Query(ctx, tx, d.box.Survey, []byte(by.Name), by.Hex()).Each(share.ScanRelay); err != nil {
		return share, err
	}
	err = engine.Query(ctx, tx, d.box.Held, by.Hex()).Each(share.ScanShard)
	return share, err
}

// alive fails with driver.ErrLeaseLost if the hold has expired.
func (d *DB) alive(ctx context.Context, tx *sql.Tx, by *engine.Hold) error {
	var alive bool
	err := tx.QueryRowContext(ctx, d.box.Alive, by.Hex()).Scan(&alive)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !alive {
		return fmt.Errorf("%w: the hold has expired", driver.ErrLeaseLost)
	}
	return err
}

func (d *DB) TakeShards(ctx context.Context, tx *sql.Tx, by *engine.Hold, n int) (map[int]int64, error) {
	if err := d.applySettings(ctx, tx); err != nil {
		return nil, err
	}
	if err := d.lockSlot(ctx, tx, dialect.TakeTurn); err != nil {
		return nil, err
	}
	if err := d.dropExpired(ctx, tx, 0); err != nil {
		return nil, err
	}
	free, err := engine.Column[int](engine.Query(ctx, tx, d.box.Free))
	if err != nil || len(free) == 0 {
		return nil, err
	}
	tokens, err := engine.ReadTokens(engine.Query(ctx, tx, d.box.Lock, shardList(free), n))
	if err != nil || len(tokens) == 0 {
		return nil, err
	}
	if err := d.alive(ctx, tx, by); err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, d.box.Take, tokenList(tokens), by.Hex())
	return tokens, err
}

// dropExpired deletes the rows of relays whose hold expired at least margin microseconds ago.
func (d *DB) dropExpired(ctx context.Context, tx *sql.Tx, margin int64) error {
	owners, err := engine.Column[engine.KeyHash](engine.Query(ctx, tx, d.box.Expired, margin))
	if err == nil && len(owners) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Bury, engine.KeyList(owners))
	}
	return err
}

func (d *DB) GiveBack(ctx context.Context, tx *sql.Tx, by *engine.Hold, shards []int) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.GiveBack, shardList(shards), by.Hex())
	return err
}

func (d *DB) Leave(ctx context.Context, tx *sql.Tx, by *engine.Hold) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	return engine.Exec(ctx, tx, []string{d.box.Leave, d.box.End}, by.Hex())
}

// shardList returns shards as JSON.
func shardList(shards []int) string {
	list := make([][1]int, len(shards))
	for i, shard := range shards {
		list[i][0] = shard
	}
	return engine.JSON(list)
}
