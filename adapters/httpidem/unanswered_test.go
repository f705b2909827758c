package httpidem_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// swallowed is a store whose network swallows what follows a handler.
type swallowed struct {
	*deduptest.Store
	verify, save atomic.Bool
}

func (s *swallowed) VerifyTx(ctx context.Context, tx *deduptest.Tx) error {
	if s.verify.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.VerifyTx(ctx, tx)
}

func (s *swallowed) SaveResult(ctx context.Context, tx *deduptest.Tx, key dedup.Key, result []byte) error {
	if s.save.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.SaveResult(ctx, tx, key, result)
}

// A connection that the network has swallowed does not keep its slot.
func TestUnanswered(t *testing.T) {
	for name, which := range map[string]func(*swallowed) *atomic.Bool{
		"verify": func(s *swallowed) *atomic.Bool { return &s.verify },
		"save":   func(s *swallowed) *atomic.Bool { return &s.save },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &swallowed{Store: deduptest.NewStore()}
				a := newAPIOn(t, store.Store, func(c *config) { c.Store, c.MaxConcurrent = store, 1 })
				which(store).Store(true)
				began := time.Now()
				a.refused(a.create(), request{}, http.StatusServiceUnavailable, httpidem.Unavailable)
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("it ended after %v", took)
				}
				a.wantEffects(0)
				which(store).Store(false)
				a.want(a.create(), request{}, http.StatusCreated, false)
				a.wantEffects(1)
			})
		})
	}
}

// committing is a store whose handlers have ended their transaction with COMMIT.
type committing struct{ *deduptest.Store }

func (s committing) InTx(ctx context.Context, recs []dedup.Record, fn func(*deduptest.Tx, []dedup.Claim) error) error {
	if err := s.Store.InTx(ctx, recs, fn); err != nil {
		return &dedup.InDoubtError{Err: fmt.Errorf("%w, before this error: %w", dedup.ErrTxEnded, err)}
	}
	return nil
}

func TestTimedOutInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Store, c.Timeout = committing{deduptest.NewStore()}, time.Second })
		a.refused(a.slow(2*time.Second), request{}, http.StatusServiceUnavailable, httpidem.Unavailable)
	})
}
