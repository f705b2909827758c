//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// box is the outbox in one of the modes.
type box struct {
	store  dedup.Store[pgx.Tx]
	writer outbox.Writer[pgx.Tx]
	queue  outbox.Queue
	pool   *pgxpool.Pool
}

func openOutbox(_ context.Context, mode string, pool *pgxpool.Pool) (*box, error) {
	switch mode {
	case "table":
		store, err := pgxstore.New(pgxstore.Config{Pool: pool})
		if err != nil {
			return nil, err
		}
		return &box{store: store, writer: store, queue: store, pool: pool}, nil
	default:
		return nil, fmt.Errorf("mode %s is not there yet", mode)
	}
}

// pending is every row that the database still holds, whatever it waits for. It looks at the tables themselves.
func (b *box) pending(ctx context.Context) (n int64, err error) {
	err = b.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM outbox_messages) + (SELECT count(*) FROM outbox_delayed) + (SELECT count(*) FROM outbox_parked)`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count what is pending: %w", err)
	}
	return n, nil
}

// Close removes what the mode keeps outside the schema.
func (b *box) Close(context.Context) error { return nil }
