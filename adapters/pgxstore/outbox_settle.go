package pgxstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/outbox/driver"
)

// Settle implements driver.Session.
func (s *outboxSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	settlement, err := pgrelay.NewSettlement(outcomes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	follow := s.held.Followed(outcomes)
	s.mu.Unlock()
	var mine []int16
	err = s.tx(ctx, "settle", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Check, s.owner, settlement.Shards, settlement.Tokens).QueryRow(func(row pgx.Row) error {
			var guard string
			return row.Scan(&mine, &guard)
		})
		queueSteps(b, settlement.Steps(&s.store.outbox, s.store.cfg.Outbox.KeepSent > 0, follow))
	})
	if err != nil {
		return err
	}
	if len(mine) != len(settlement.Shards) {
		s.dropShards(settlement, mine)
		return fmt.Errorf("%w: %d of %d shards have gone to another relay", driver.ErrLeaseLost, len(settlement.Shards)-len(mine), len(settlement.Shards))
	}
	s.mu.Lock()
	s.held.Settle(outcomes)
	s.mu.Unlock()
	s.giveBackLeaving(ctx)
	return nil
}

// dropShards forgets the shards of a settlement that are not in mine.
func (s *outboxSession) dropShards(settlement *pgrelay.Settlement, mine []int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range settlement.Shards {
		if sh := s.held[int(n)]; sh != nil && sh.Token == settlement.Tokens[i] && !slices.Contains(mine, n) {
			delete(s.held, int(n))
		}
	}
}
