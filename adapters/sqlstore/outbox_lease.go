package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/txonce/txonce/outbox"
)

// comeAtOnce is how many messages whose time has come are moved in one transaction.
const comeAtOnce = 1000

// Lease implements outbox.Session.
func (o *outboxSession) Lease(ctx context.Context, want outbox.Want) ([]outbox.Leased, error) {
	if want.Limit <= 0 {
		return nil, errors.New("sqlstore: lease: Want.Limit is required")
	}
	o.mu.Lock()
	held := len(o.shards)
	o.mu.Unlock()
	if held == 0 {
		return nil, nil
	}
	sight, err := o.look(ctx)
	if err == nil && sight.due {
		err = o.store.outboxTx(ctx, "lease", func(ctx context.Context, tx *sql.Tx) error {
			return o.store.db.come(ctx, tx, comeAtOnce)
		})
		if err == nil {
			sight, err = o.look(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	chosen, shards := o.choose(sight, want.Part)
	if len(chosen) == 0 {
		return nil, nil
	}
	var msgs []outbox.Leased
	defer func() { o.leased(shards, msgs) }()
	err = o.store.outboxRead(ctx, "lease", func(ctx context.Context, q queryer) (err error) {
		msgs, err = o.store.db.lease(ctx, q, &o.hold, chosen, sight.tokens, want)
		return err
	})
	if err != nil {
		msgs = nil
	}
	return msgs, err
}

func (o *outboxSession) look(ctx context.Context) (sight outboxSight, err error) {
	err = o.store.outboxRead(ctx, "lease", func(ctx context.Context, q queryer) (err error) {
		sight, err = o.store.db.look(ctx, q, &o.hold)
		return err
	})
	return sight, err
}

// choose marks the next shards that have messages and nothing leased.
func (o *outboxSession) choose(sight outboxSight, part int) (chosen []int, shards map[int]*outboxShard) {
	o.mu.Lock()
	defer o.mu.Unlock()
	part = max(part, 1)
	most := (len(o.shards) + part - 1) / part
	shards = make(map[int]*outboxShard)
	for _, i := range o.held() {
		s := o.shards[i]
		token, there := sight.tokens[i]
		if len(chosen) == most {
			break
		}
		if !there || token != s.token || !s.idle() || s.leaving {
			continue
		}
		s.busy = true
		chosen, shards[i] = append(chosen, i), s
	}
	if len(chosen) > 0 {
		o.next = chosen[len(chosen)-1] + 1
	}
	return chosen, shards
}

// leased notes what was read of the shards that choose has marked.
func (o *outboxSession) leased(shards map[int]*outboxShard, msgs []outbox.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range shards {
		s.busy = false
	}
	for i := range msgs {
		s := shards[msgs[i].Shard]
		if s.leased == nil {
			s.leased = make(map[int64]struct{})
		}
		s.leased[msgs[i].Seq] = struct{}{}
	}
}

// Settle implements outbox.Session.
func (o *outboxSession) Settle(ctx context.Context, outcomes []outbox.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	tokens := make(map[int]int64)
	changes := make([]outbox.Outcome, 0, len(outcomes))
	for _, out := range outcomes {
		if token, seen := tokens[out.Shard]; seen && token != out.Token {
			return o.store.outboxError("settle", outbox.ErrLeaseLost) // one of them is stale
		}
		tokens[out.Shard] = out.Token
		if out.Verdict != outbox.Returned {
			changes = append(changes, out)
		}
	}
	if len(changes) > 0 {
		slices.SortFunc(changes, func(a, b outbox.Outcome) int { return cmp.Or(a.Shard-b.Shard, cmp.Compare(a.Seq, b.Seq)) })
		idle := o.idleAfter(tokens, outcomes)
		err := o.store.outboxTx(ctx, "settle", func(ctx context.Context, tx *sql.Tx) error {
			return o.store.db.settleLeases(ctx, tx, &o.hold, tokens, changes, idle)
		})
		if err != nil {
			return err
		}
	}
	o.settled(outcomes)
	return nil
}

// idleAfter returns those shards of which nothing is leased any more when outcomes are settled.
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
