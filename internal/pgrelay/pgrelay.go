// Package pgrelay has the transactions of a relay and of operators on an outbox in PostgreSQL: they hold shards, settle messages, and return
// parked messages to the queue. Their callers send the statements: adapters/pgxstore those of a transaction in one round trip,
// adapters/sqlstore one after the other.
//
// A transaction that a crash cuts off is rolled back. Repair needs several; after a crash between two of them, Rescue does the rest.
package pgrelay

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Step is one statement.
type Step struct {
	SQL     string
	Args    []any                      // a slice is an array, except []byte
	Row     func(row shares.Row) error // gets each row; nil: the statement returns none
	Changed func(rows int64)           // gets the number of changed rows; nil: it does not matter
}

// Run sends steps in one transaction at READ COMMITTED, with the relay's settings. operation names them in errors. Run may roll back and send
// them again.
type Run func(ctx context.Context, operation string, steps ...Step) error

// Renew begins or extends the hold of the session owner, and reads the state of all shards and sessions. It fails with
// driver.ErrLeaseLost if the hold has expired.
func Renew(ctx context.Context, run Run, sql *dialect.PostgresOutbox, owner any, name string, ttl time.Duration, begun bool) (state shares.State, err error) {
	state = shares.NewState()
	alive := false
	hold := Step{SQL: sql.Begin, Args: []any{owner, name, ttl.Seconds()}}
	if begun {
		hold = Step{SQL: sql.Renew, Args: []any{owner, ttl.Seconds()}}
	}
	hold.Changed = func(rows int64) { alive = rows == 1 }
	err = run(
		ctx, "renew", hold, Step{SQL: sql.Restart},
		Step{SQL: sql.Relays, Args: []any{owner, name}, Row: state.ScanRelay},
		Step{SQL: sql.Shards, Args: []any{owner}, Row: state.ScanReturned},
	)
	if err == nil && !alive {
		err = fmt.Errorf("%w: the hold has expired", driver.ErrLeaseLost)
	}
	return state, err
}

// Take takes up to n shards whose owners have no valid hold, and returns them with their tokens.
func Take(ctx context.Context, run Run, sql *dialect.PostgresOutbox, owner any, n int) (tokens map[int]int64, err error) {
	tokens = map[int]int64{}
	return tokens, run(
		ctx, "take shards",
		Step{SQL: sql.LockShards}, Step{SQL: sql.DropExpired},
		Step{SQL: sql.Take, Args: []any{owner, n}, Row: func(row shares.Row) error {
			var shard int
			var token int64
			err := row.Scan(&shard, &token)
			tokens[shard] = token
			return err
		}},
	)
}

// GiveBack gives back shards.
func GiveBack(ctx context.Context, run Run, sql *dialect.PostgresOutbox, owner any, shards []int) error {
	return run(ctx, "give back shards", Step{SQL: sql.GiveBack, Args: []any{owner, shards}})
}

// End ends the hold of the session owner.
func End(ctx context.Context, run Run, sql *dialect.PostgresOutbox, owner any) error {
	return run(ctx, "close", Step{SQL: sql.End, Args: []any{owner}}, Step{SQL: sql.GiveBackAll, Args: []any{owner}})
}
