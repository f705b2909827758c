package consumer_test

import (
	"context"
	"slices"

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
