package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

// Purge implements dedup.Purger.
func (s *Store) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	return s.sweep(ctx, by, nil)
}

// PurgeArchived implements dedup.Archiver.
func (s *Store) PurgeArchived(ctx context.Context, by dedup.Sweep,
	archive func(ctx context.Context, expired []dedup.Expired) error,
) (dedup.SweepResult, error) {
	a := &engine.Archive{Look: true}
	if swept, err := s.sweep(ctx, by, a); err != nil || swept.Busy {
		return swept, err
	}
	if len(a.Rows) > 0 {
		expired := make([]dedup.Expired, len(a.Rows))
		for i := range a.Rows {
			expired[i] = a.Rows[i].Expired()
		}
		if err := archive(ctx, expired); err != nil {
			return dedup.SweepResult{}, fmt.Errorf("sqlstore: purge: %w", err)
		}
	}
	a.Look = false
	return s.sweep(ctx, by, a)
}

// sweep runs Tables.Sweep in a transaction of its own.
func (s *Store) sweep(ctx context.Context, by dedup.Sweep, a *engine.Archive) (dedup.SweepResult, error) {
	if by.Owner == "" || by.Lease <= 0 || by.Limit <= 0 {
		return dedup.SweepResult{}, errors.New("sqlstore: purge: Sweep.Owner, Lease and Limit are required")
	}
	if err := s.checkSchema(ctx); err != nil { // each time: a newer release may have changed the tables since
		return dedup.SweepResult{}, err
	}
	// at a higher level a sweep would fail on every row that another transaction changed
	t, err := s.begin(ctx, sql.LevelReadCommitted)
	if err != nil {
		return dedup.SweepResult{}, err
	}
	defer t.close()
	ctx, cancel := context.WithTimeout(ctx, 3*s.answerWithin) // longer than the server's own limits
	defer cancel()
	swept, err := s.db.Tables.Sweep(ctx, t.Tx, by, a)
	if errors.Is(err, engine.ErrBusy) {
		return dedup.SweepResult{Clock: swept.Clock, Busy: true}, nil
	}
	if errors.Is(err, dedup.ErrClock) {
		return dedup.SweepResult{Clock: swept.Clock}, err
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		t.Spoilt = s.fault(err).ReadOnly
		return dedup.SweepResult{}, engine.Database.Wrap(s.statementError(fmt.Errorf("purge: %w", err)))
	}
	if err := t.commit(); err != nil {
		return dedup.SweepResult{}, err
	}
	return swept, nil
}
