package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox"
)

// Settle implements outbox.Session.
func (o *outboxSession) Settle(ctx context.Context, outcomes []outbox.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	tokens := make(map[int]int64)
	outcomes = slices.SortedFunc(slices.Values(outcomes), func(a, b outbox.Outcome) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.Seq, b.Seq)) })
	var do engine.Outcomes
	for _, out := range outcomes {
		if token, seen := tokens[out.Shard]; seen && token != out.Token {
			return o.store.outboxError("settle", outbox.ErrLeaseLost) // one of the tokens is stale
		}
		tokens[out.Shard] = out.Token
		switch out.Verdict {
		case outbox.Returned:
		case outbox.Sent:
			do.Sent = append(do.Sent, out)
		case outbox.Deferred:
			do.Deferred = append(do.Deferred, out)
		case outbox.Parked:
			do.Parked = append(do.Parked, out)
		default:
			return fmt.Errorf("sqlstore: settle: message %d: unknown verdict %d", out.Seq, out.Verdict)
		}
	}
	var err error
	if len(do.Sent)+len(do.Deferred)+len(do.Parked) > 0 {
		do.Follow = o.followed(do.Parked, o.idleAfter(tokens, outcomes))
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
	o.settled(outcomes)
	o.giveBackLeaving(ctx)
	return nil
}

// followed returns those of the idle shards where messages behind parked ones must be parked too.
func (o *outboxSession) followed(parked []outbox.Outcome, idle []int) (shards []int) {
	for _, out := range parked {
		if out.Key != "" && out.ParkPolicy != outbox.SkipMessage && slices.Contains(idle, out.Shard) && !slices.Contains(shards, out.Shard) {
			shards = append(shards, out.Shard)
		}
	}
	return shards
}

// idleAfter returns the shards that have no leased messages left once outcomes are settled.
func (o *outboxSession) idleAfter(tokens map[int]int64, outcomes []outbox.Outcome) (idle []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := make(map[int]int)
	for i := range tokens {
		if s := o.shards[i]; s != nil {
			left[i] = len(s.leased)
		}
	}
	for _, out := range outcomes {
		if s := o.shards[out.Shard]; s != nil {
			if _, leased := s.leased[out.Seq]; leased {
				left[out.Shard]--
			}
		}
	}
	for i, n := range left {
		if n == 0 {
			idle = append(idle, i)
		}
	}
	slices.Sort(idle)
	return idle
}

func (o *outboxSession) settled(outcomes []outbox.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, out := range outcomes {
		if s := o.shards[out.Shard]; s != nil && s.token == out.Token {
			delete(s.leased, out.Seq)
		}
	}
}
