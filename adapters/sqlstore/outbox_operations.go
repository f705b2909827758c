package sqlstore

import (
	"context"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/outbox"
)

// Outbox returns the operations on this store's outbox: its statistics, and what a person does with messages that a
// relay has parked. Dead letters of consumers are not in the outbox: see DeadLetters.
func (s *Store) Outbox() outbox.Operations {
	if relay := s.db.Outbox.Relay; relay != nil {
		return pgrelay.Operations{
			Database: relayLink{s, relay}, SQL: relay.RelayStatements(), Wake: s.Wake,
			Ready: func(ctx context.Context) error { return s.outboxError("look for the tables", s.locate(ctx, nil)) },
		}
	}
	return operations{s}
}

// operations are the outbox.Operations of a Store on databases other than PostgreSQL. They are apart from it because
// Store.Park and Store.DeadLetters are about the messages of consumers.
type operations struct{ store *Store }

// Stats implements outbox.Operations.
func (o operations) Stats(ctx context.Context) (stats outbox.Stats, err error) {
	s := o.store
	err = s.outboxRead(ctx, "stats", func(ctx context.Context, q engine.Queryer) (err error) {
		from, err := s.db.Outbox.Operations.StatsStatements(ctx, q)
		if err == nil {
			stats, err = readStats(ctx, q, from)
		}
		return err
	})
	return stats, err
}

// Parked implements outbox.Operations.
func (o operations) Parked(ctx context.Context, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	s := o.store
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	err = s.outboxRead(ctx, "parked", func(ctx context.Context, q engine.Queryer) (err error) {
		parked, err = s.db.Outbox.Operations.Parked(ctx, q, filter)
		return err
	})
	return parked, err
}

// Unpark implements outbox.Operations. A message behind another one that stays parked also stays parked, or is parked
// again. If Unpark fails, some of the messages may already be unparked.
func (o operations) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.repair(ctx, "unpark", seqs, true)
}

// Discard implements outbox.Operations. If it fails, some of the messages may already be deleted.
func (o operations) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.repair(ctx, "discard", seqs, false)
}

func (s *Store) repair(ctx context.Context, what string, seqs []int64, unpark bool) (n int, err error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	if err := s.locate(ctx, nil); err != nil {
		return 0, s.outboxError(what, err)
	}
	seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	n, err = s.db.Outbox.Operations.Repair(ctx, s.outboxRunner(what), seqs, unpark)
	if n > 0 {
		s.Wake(ctx)
	}
	return n, s.outboxError(what, err)
}
