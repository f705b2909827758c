package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox/driver"
)

// Settle implements driver.Session.
func (o *outboxSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	tokens := make(map[int]int64)
	outcomes = slices.SortedFunc(slices.Values(outcomes),
		func(a, b driver.Outcome) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.Seq, b.Seq)) })
	var do engine.Outcomes
	for _, out := range outcomes {
		if token, seen := tokens[out.Shard]; seen && token != out.Token {
			return o.store.outboxError("settle", driver.ErrLeaseLost) // one of the tokens is stale
		}
		tokens[out.Shard] = out.Token
		switch out.Verdict {
		case driver.Returned:
			if out.Delay > 0 && out.OrderingKey != "" {
				do.Paused = append(do.Paused, out)
			}
		case driver.Sent:
			do.Sent = append(do.Sent, out)
		case driver.Deferred:
			do.Deferred = append(do.Deferred, out)
		case driver.Parked:
			do.Parked = append(do.Parked, out)
		default:
			return fmt.Errorf("sqlstore: settle: message %d: unknown verdict %d", out.Seq, out.Verdict)
		}
	}
	var err error
	if len(do.Sent)+len(do.Deferred)+len(do.Parked)+len(do.Paused) > 0 {
		o.mu.Lock()
		do.Follow = o.shards.Followed(outcomes)
		o.mu.Unlock()
		err = o.store.outboxTx(ctx, "settle", func(ctx context.Context, tx *sql.Tx) error {
			return o.store.db.Outbox.Settler.Settle(ctx, tx, &o.hold, tokens, &do)
		})
	} else { // nothing to write: only check that the session still holds the shards
		err = o.store.outboxRead(ctx, "settle", func(ctx context.Context, q engine.Queryer) error {
			return o.store.db.Outbox.Settler.Own(ctx, q, &o.hold, tokens)
		})
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.shards.Settle(outcomes)
	o.mu.Unlock()
	o.giveBackLeaving(ctx)
	return nil
}
