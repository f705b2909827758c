package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// Sequence implements dedup.Sequencer for the property test. It claims nothing ahead, but the test fails if anything else uses the
// database while it would hold such a claim.
func (u *unreliable) Sequence() dedup.Sequence[tx] { return &sequence{u} }

type sequence struct{ *unreliable }

func (s *sequence) InTx(ctx context.Context, recs, next []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	alike := func(r, s dedup.Record) bool { r.Redelivered = s.Redelivered; return r == s }
	if s.w.ahead != nil && !slices.EqualFunc(s.w.ahead, recs, alike) {
		s.w.Fatalf("%v was claimed ahead, and %v follows: the connection is lost", s.w.ahead, recs)
	}
	s.w.used += len(s.w.ahead)
	s.w.ahead = nil
	err := s.unreliable.InTx(ctx, recs, fn)
	if err == nil && len(next) > 0 {
		s.w.ahead = next
	}
	return err
}

func (s *sequence) Close() { s.w.ahead = nil }

// holding is a store that notices transactions beside a claim that was made ahead.
type holding struct {
	*consumertest.Store
	t     *testing.T
	ahead []dedup.Record
	times int // how often a claim was made ahead
}

func (h *holding) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	if h.ahead != nil {
		h.t.Errorf("a transaction claims %v while %v is claimed ahead", recs, h.ahead)
	}
	return h.Store.InTx(ctx, recs, fn)
}

func (h *holding) Sequence() dedup.Sequence[tx] { return heldAhead{h} }

type heldAhead struct{ *holding }

func (a heldAhead) InTx(ctx context.Context, recs, next []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	a.ahead = nil
	err := a.Store.InTx(ctx, recs, fn)
	if err == nil && len(next) > 0 {
		a.ahead = next
		a.times++
	}
	return err
}

func (a heldAhead) Close() { a.ahead = nil }

// While the parking limit is spent, a message may be deferred after its claim was made ahead. That claim must not be held while the next
// message, a suspect, has its trial, which takes transactions of its own.
func TestNothingIsClaimedAheadDuringATrial(t *testing.T) {
	synctest.Test(t, nothingIsClaimedAheadDuringATrial)
}

func nothingIsClaimedAheadDuringATrial(t *testing.T) {
	store := &holding{Store: consumertest.NewStore(), t: t}
	c := newConsumer(t, config{
		Store: store, MaxBatch: 1, MaxAttempts: 1, Backoff: noBackoff, ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1},
		Handle: func(_ context.Context, _ tx, m *consumer.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return consumer.Permanent(errors.New("no"))
			}
			return nil
		},
	})
	c.ProcessBatch(t.Context(), []*consumer.Message{msg("bad 1", "a"), msg("bad 2", "a")}) // spends the parking limit
	<-time.After(time.Minute)                                                              // one token is back, so one message runs as a probe
	suspect := msg("suspect", "a")
	suspect.Attempt = 100
	errs := c.ProcessBatch(t.Context(), []*consumer.Message{msg("good 1", "a"), msg("good 2", "a"), suspect})
	if errs[0] != nil || !errors.Is(errs[1], consumer.ErrParkLimit) || store.times == 0 {
		t.Errorf("answers %v, %d claims made ahead: want that the first message ran as a probe, and the second was deferred after its claim was made ahead", errs, store.times)
	}
}
