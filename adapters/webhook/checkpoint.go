package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Checkpoint keeps in the database how far a backfill has come, in a claim's result. It needs no table of its own.
type Checkpoint[TTx any] struct {
	store   dedup.Store[TTx]
	results driver.ResultStore[TTx]
	rec     dedup.Record

	positions driver.Positions // nil: the store does not tell its histories apart
	history   atomic.Int64     // that of the last Load; 0: none
}

// NewCheckpoint returns the checkpoint called name. Each backfill needs a name of its own. A checkpoint that was not
// saved for longer than window is forgotten. The store must be a driver.ResultStore, as pgxstore and sqlstore are.
func NewCheckpoint[TTx any](store dedup.Store[TTx], name string, window time.Duration) (*Checkpoint[TTx], error) {
	results, ok := store.(driver.ResultStore[TTx])
	if !ok {
		return nil, fmt.Errorf("webhook: NewCheckpoint: the store %T is not a driver.ResultStore", store)
	}
	rec := dedup.Record{Key: dedup.Key{Consumer: name + "/backfill", ID: "checkpoint"}, Window: window}
	if err := rec.Validate(); err != nil {
		return nil, fmt.Errorf("webhook: NewCheckpoint: %w", err)
	}
	positions, _ := any(store).(driver.Positions)
	return &Checkpoint[TTx]{store: store, results: results, rec: rec, positions: positions}, nil
}

// Load returns what Save stored last, or nil.
func (c *Checkpoint[TTx]) Load(ctx context.Context) (state []byte, err error) {
	err = c.store.InTx(ctx, []dedup.Record{c.rec}, func(tx TTx, claims []dedup.Claim) error {
		state = claims[0].Result
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("webhook: load the checkpoint: %w", err)
	}
	if c.positions != nil {
		c.history.Store(c.positions.History())
	}
	return state, nil
}

// Save replaces the stored state in one transaction. Save it only after all events before it were handled: after a
// crash the backfill begins again at the state that was saved last.
//
// If the database is another server than that of the last Load, or was started again since, it may have lost events that
// were handled since. Then Save stores nothing, and fails with an error that wraps driver.ErrHistoryChanged: go on from
// what Load returns.
//
// When two processes save at the same time, the later one wins. The state may then be the older one, which costs only
// duplicates.
func (c *Checkpoint[TTx]) Save(ctx context.Context, state []byte) error {
	err := errSavedByAnother
	for tries := 0; errors.Is(err, errSavedByAnother) && tries < 10; tries++ {
		err = c.replace(ctx, state)
	}
	if err != nil {
		return fmt.Errorf("webhook: save the checkpoint: %w", err)
	}
	return nil
}

var errSavedByAnother = fmt.Errorf("other processes save it at the same time: %w", dedup.ErrInFlight)

func (c *Checkpoint[TTx]) replace(ctx context.Context, state []byte) error {
	return c.store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := c.store.Forget(ctx, tx, c.rec.Key); err != nil {
			return err
		}
		claims, err := c.store.Claim(ctx, tx, []dedup.Record{c.rec})
		if err != nil {
			return err
		}
		switch {
		case claims[0].Verdict != dedup.First:
			return errSavedByAnother
		case c.lost():
			return fmt.Errorf("events are handled again from the stored state on: %w", driver.ErrHistoryChanged)
		}
		return c.results.SaveResult(ctx, tx, c.rec.Key, state)
	})
}

// lost reports whether the database may have lost events since the last Load.
func (c *Checkpoint[TTx]) lost() bool {
	history := c.history.Load()
	return history != 0 && c.positions.History() != history
}
