package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

// Stats implements outbox.Operations.
func (s *Store) Stats(ctx context.Context) (stats outbox.Stats, err error) {
	err = s.outboxRead(ctx, "stats", func(ctx context.Context, q queryer) (err error) {
		stats, err = s.db.stats(ctx, q)
		return err
	})
	return stats, err
}

// Parked implements outbox.Operations.
func (s *Store) Parked(ctx context.Context, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	err = s.outboxRead(ctx, "parked", func(ctx context.Context, q queryer) (err error) {
		parked, err = s.db.parked(ctx, q, filter)
		return err
	})
	return parked, err
}

// Unpark implements outbox.Operations. A message that waits behind another goes on with that one only.
func (s *Store) Unpark(ctx context.Context, seqs ...int64) (n int, err error) {
	return s.repair(ctx, "unpark", seqs, s.db.unpark)
}

// Discard implements outbox.Operations.
func (s *Store) Discard(ctx context.Context, seqs ...int64) (n int, err error) {
	return s.repair(ctx, "discard", seqs, s.db.discard)
}

func (s *Store) repair(ctx context.Context, what string, seqs []int64, f func(context.Context, *sql.Tx, []int64) (int, error)) (n int, err error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	err = s.outboxTx(ctx, what, func(ctx context.Context, tx *sql.Tx) (err error) {
		n, err = f(ctx, tx, seqs)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.Wake(ctx)
	return n, nil
}
