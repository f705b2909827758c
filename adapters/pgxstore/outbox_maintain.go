package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/pgrelay"
)

const (
	maintainRows  = 5000 // rows per statement
	maintainSteps = 10   // repetitions of one statement
	followShards  = 16   // shards that one Maintain searches for followers
	strandedEach  = time.Minute
)

// Maintain implements driver.Maintainer. It looks for work by one statement, and is done if there is none.
func (s *outboxSession) Maintain(ctx context.Context) error {
	if s.ranOut() {
		return nil // another session maintains the outbox
	}
	s.mu.Lock()
	s.maintained = time.Now()
	s.mu.Unlock()
	s.chores.Lock()
	found, err := s.doChores(ctx, true)
	s.chores.Unlock()
	if err != nil {
		return err
	}
	if found.expired {
		err := s.tx(ctx, "maintain", func(b *pgx.Batch) {
			b.Queue(s.store.outbox.DropHolds)
			b.Queue(s.store.outbox.DropDead)
		})
		if err != nil {
			return err
		}
	}
	if err := s.followSome(ctx, found.behind); err != nil {
		return err
	}
	if err := s.rescue(ctx); err != nil {
		return err
	}
	return s.forget(ctx)
}

// forget deletes sent messages that are older than KeepSent.
func (s *outboxSession) forget(ctx context.Context) error {
	if s.store.cfg.Outbox.KeepSent <= 0 {
		return nil
	}
	for range maintainSteps {
		var n int64
		err := s.tx(ctx, "forget sent messages", func(b *pgx.Batch) {
			b.Queue(s.store.outbox.Forget, s.store.cfg.Outbox.KeepSent.Seconds(), maintainRows).Exec(affected(&n))
		})
		if err != nil || n < maintainRows {
			return err
		}
	}
	return nil
}

func affected(n *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = tag.RowsAffected()
		return nil
	}
}

// followSome parks the messages behind parked ones in those of the shards that are idle.
func (s *outboxSession) followSome(ctx context.Context, behind []int) error {
	if len(behind) == 0 {
		return nil
	}
	for range maintainSteps {
		shards, done := s.borrow(behind)
		n, err := s.follow(ctx, shards)
		done()
		if err != nil || n < pgrelay.FollowMost {
			return err
		}
	}
	return nil
}

// follow parks messages that wait behind parked ones, among the first rows of each shard. The shards must have no
// leased messages, because a message must not be moved while it is being published.
func (s *outboxSession) follow(ctx context.Context, shards []int) (n int64, err error) {
	if len(shards) == 0 {
		return 0, nil
	}
	numbers, tokens := s.tokens(shards) // without those that were lost meanwhile
	shards = shards[:0:0]
	for _, n := range numbers {
		shards = append(shards, int(n))
	}
	follow := pgrelay.Follow(&s.store.outbox, shards)
	follow.Changed = func(rows int64) { n = rows }
	return n, inBatch(s.tx)(ctx, "park followers", pgrelay.Step{SQL: s.store.outbox.Check, Args: []any{s.owner, numbers, tokens}}, follow)
}

// rescue finishes an Unpark or Discard that crashed midway: it returns the messages that no longer wait behind a parked one.
func (s *outboxSession) rescue(ctx context.Context) error {
	s.mu.Lock()
	now := time.Now()
	var shards []int
	if now.After(s.rescueAt) {
		shards = s.held.Numbers()
	}
	s.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	if err := pgrelay.Rescue(ctx, inBatch(s.store.outboxTx), s.store.outboxRead, &s.store.outbox, shards); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rescueAt = now.Add(strandedEach)
	return nil
}
