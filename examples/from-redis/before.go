// Package fromredis shows a handler that finds duplicates with SETNX in Redis, the same handler with txonce, and how to move
// from the one to the other. docs/moving.md explains it.
package fromredis

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// before is the old handler. Redis and PostgreSQL do not commit together:
//   - a crash between SetNX and COMMIT loses the order, because its key is there when it comes again;
//   - with Del after an error, or SetNX after COMMIT, a crash or a lost answer charges it twice instead;
//   - a key that expired, was evicted, or was lost in a failover of Redis is a message that is handled again.
type before struct {
	redis  *redis.Client
	prefix string // of the keys in Redis, such as seen:
	pool   *pgxpool.Pool
	crash  func(orderID string) error // of the tests: the process dies between the two
}

func (b *before) handle(ctx context.Context, o OrderPlaced) error {
	first, err := b.redis.SetNX(ctx, b.prefix+o.OrderID, 1, 24*time.Hour).Result()
	if err != nil {
		return err
	}
	if !first {
		return nil // a duplicate
	}
	if err := b.crash(o.OrderID); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return charge(ctx, tx, o) })
}

func charge(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Cents)
	return err
}
