package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// open is a store whose transactions a handler can end, as with most drivers. The store notices afterwards.
type open struct{ *consumertest.Store }

func (o *open) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	t, err := o.Database().Begin(ctx)
	if err != nil {
		return err
	}
	defer t.Rollback()
	claims, err := o.Claim(ctx, t, recs)
	if err != nil {
		return err
	}
	err = fn(t, claims)
	if ended := o.VerifyTx(ctx, t); ended != nil && !errors.Is(err, dedup.ErrTxEnded) {
		err = errors.Join(ended, err)
	}
	if err != nil {
		return err
	}
	return t.Commit(ctx)
}

func (o *open) VerifyTx(ctx context.Context, t tx) error {
	if err := o.Store.VerifyTx(ctx, t); err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrTxEnded, err)
	}
	return nil
}

// blind is an open store that does not verify the transaction between two handlers.
type blind struct {
	dedup.Store[tx]
	lot
	dedup.Purger
}

type lot interface {
	driver.ParkingLot[tx]
}

func TestBatches(t *testing.T) {
	for name, wrap := range map[string]func(*consumertest.Store) dedup.Store[tx]{
		"a store that guards its transactions": func(s *consumertest.Store) dedup.Store[tx] { return s },
		"a store that verifies them":           func(s *consumertest.Store) dedup.Store[tx] { return &open{s} },
		"a store that notices when it commits": func(s *consumertest.Store) dedup.Store[tx] { return blind{&open{s}, s, s} },
	} {
		t.Run(name, func(t *testing.T) {
			consumertest.TestBatches(t, deduptest.Harness[tx]{New: func(*testing.T) deduptest.DB[tx] {
				db := deduptest.NewDatabase()
				const prefix = "effect "
				return deduptest.DB[tx]{
					Open: func(*testing.T, deduptest.Options) dedup.Store[tx] { return wrap(consumertest.NewStoreOn(db)) },
					Effect: func(ctx context.Context, tx tx, name string) error {
						return tx.Update(ctx, prefix+name, func(old any) any { n, _ := old.(int); return n + 1 })
					},
					Effects: func(*testing.T) (names []string) {
						for name, n := range db.Values(prefix) {
							for range n.(int) {
								names = append(names, strings.TrimPrefix(name, prefix))
							}
						}
						return names
					},
					Misuse: []deduptest.Misuse[tx]{
						{Name: "Commit", Ends: true, Do: func(ctx context.Context, tx tx) error { return tx.Commit(ctx) }},
						{Name: "Rollback", Ends: true, Do: func(_ context.Context, tx tx) error { return tx.Rollback() }},
					},
				}
			}})
		})
	}
}
