package pgxstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox"
)

// Settle implements outbox.Session.
func (s *outboxSession) Settle(ctx context.Context, outcomes []outbox.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	plan, err := newSettlement(outcomes)
	if err != nil {
		return err
	}
	var mine []int16
	err = s.tx(ctx, "settle", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Check, s.owner, plan.shards, plan.tokens).QueryRow(func(row pgx.Row) error {
			var guard string
			return row.Scan(&mine, &guard)
		})
		plan.queue(b, s.store)
		if shards := s.shardsToFollow(outcomes); len(shards) > 0 { // messages behind those that are parked now
			b.Queue(s.store.outbox.Follow, shards, scanFirst, maintainRows)
		}
	})
	if err != nil {
		return err
	}
	if len(mine) != len(plan.shards) {
		s.dropShards(plan, mine)
		return fmt.Errorf("%w: %d of %d shards have gone to another relay", outbox.ErrLeaseLost, len(plan.shards)-len(mine), len(plan.shards))
	}
	s.forgetLeases(outcomes)
	s.giveBackLeaving(ctx)
	return nil
}

// forgetLeases removes the settled messages from the remembered leases.
func (s *outboxSession) forgetLeases(outcomes []outbox.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range outcomes {
		if sh := s.held[outcomes[i].Shard]; sh != nil && sh.token == outcomes[i].Token {
			delete(sh.leased, outcomes[i].Seq)
		}
	}
}

// shardsToFollow lists the shards where outcomes park a message and no message stays leased.
func (s *outboxSession) shardsToFollow(outcomes []outbox.Outcome) (shards []int16) {
	left := map[int]int{}
	parks := map[int]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range outcomes {
		o := &outcomes[i]
		sh := s.held[o.Shard]
		if sh == nil {
			continue
		}
		if _, seen := left[o.Shard]; !seen {
			left[o.Shard] = len(sh.leased)
		}
		if _, leased := sh.leased[o.Seq]; leased {
			left[o.Shard]--
		}
		if o.Verdict == outbox.Parked && o.Key != "" && o.ParkPolicy != outbox.SkipMessage {
			parks[o.Shard] = true
		}
	}
	for n := range parks {
		if left[n] <= 0 {
			shards = append(shards, int16(n))
		}
	}
	return shards
}

// dropShards forgets the shards of plan that are not in mine.
func (s *outboxSession) dropShards(plan *settlement, mine []int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range plan.shards {
		if sh := s.held[int(n)]; sh != nil && sh.token == plan.tokens[i] && !slices.Contains(mine, n) {
			delete(s.held, int(n))
		}
	}
}

// settlement holds outcomes as columns, for the statements.
type settlement struct {
	shards []int16 // each once
	tokens []int64
	sent   settledRows
	failed settledRows
	parked settledRows
}

type settledRows struct {
	shards     []int16
	seqs       []int64
	attempts   []int32
	causes     []string
	delays     []float64
	parkPolicy []int16
}

func newSettlement(outcomes []outbox.Outcome) (*settlement, error) {
	p := &settlement{}
	tokens := map[int]int64{}
	for i := range outcomes {
		o := &outcomes[i]
		if token, seen := tokens[o.Shard]; seen && token != o.Token {
			return nil, fmt.Errorf("%w: two tokens of shard %d", outbox.ErrLeaseLost, o.Shard)
		} else if !seen {
			tokens[o.Shard] = o.Token
			p.shards, p.tokens = append(p.shards, int16(o.Shard)), append(p.tokens, o.Token)
		}
		switch o.Verdict {
		case outbox.Returned:
		case outbox.Sent:
			p.sent.add(o)
		case outbox.Deferred:
			p.failed.add(o)
		case outbox.Parked:
			p.parked.add(o)
		default:
			return nil, fmt.Errorf("pgxstore: outbox: settle: message %d: no verdict %d", o.Seq, o.Verdict)
		}
	}
	return p, nil
}

func (c *settledRows) add(o *outbox.Outcome) {
	c.shards, c.seqs = append(c.shards, int16(o.Shard)), append(c.seqs, o.Seq)
	if o.Verdict == outbox.Sent {
		return
	}
	c.attempts = append(c.attempts, int32(columns.Attempts(o)))
	c.causes = append(c.causes, columns.Cause(o))
	c.delays = append(c.delays, max(0, o.Delay.Seconds()))
	c.parkPolicy = append(c.parkPolicy, int16(o.ParkPolicy))
}

func (p *settlement) queue(b *pgx.Batch, s *Store) {
	if c := &p.sent; len(c.seqs) > 0 {
		if s.cfg.Outbox.KeepSent > 0 {
			b.Queue(s.outbox.Keep, c.shards, c.seqs)
		} else {
			b.Queue(s.outbox.Sent, c.shards, c.seqs)
		}
	}
	if c := &p.parked; len(c.seqs) > 0 {
		b.Queue(s.outbox.Park, c.shards, c.seqs, c.attempts, c.causes, c.parkPolicy)
		b.Queue(s.outbox.HoldParked, c.seqs)
	}
	if c := &p.failed; len(c.seqs) > 0 {
		b.Queue(s.outbox.Defer, c.shards, c.seqs, c.attempts, c.causes, c.delays)
		b.Queue(s.outbox.HoldDeferred, c.shards, c.seqs, c.delays)
	}
}
