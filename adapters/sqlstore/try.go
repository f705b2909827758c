package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// triedConsumer is the Consumer of the keys that try claims. Their IDs are random, so no message has such a key.
const triedConsumer = "txonce check"

// try makes a claim, and then a second one with a duplicate, as messages do, and rolls back. It fails if the server
// cannot run txonce's statements: a version that txonce does not know may refuse one of them, and then each message
// would fail.
func (s *Store) try(ctx context.Context) (err error) {
	first := dedup.Record{Key: dedup.Key{Consumer: triedConsumer, ID: rand.Text()}}
	second := dedup.Record{Key: dedup.Key{Consumer: triedConsumer, ID: rand.Text()}}
	for range claims.Attempts {
		err = s.tryClaims(ctx, []dedup.Record{first}, []dedup.Record{first, second})
		if !errors.Is(err, claims.ErrAgain) && !errors.Is(err, dedup.ErrNotDurable) {
			// another session may have other settings
			break
		}
	}
	switch f := s.fault(err); {
	case err == nil, errors.Is(err, dedup.ErrSchema), errors.Is(err, dedup.ErrNotDurable):
		return err
	case f.Class == driver.FaultData, f.Class == driver.FaultDeployment:
		// No message is to blame, and another attempt would repeat it. The cause is not wrapped: its number may be
		// Retryable.
		return fmt.Errorf("sqlstore: the server refuses a statement that each message needs; "+
			"is it one of the databases, and a version, that txonce's README names? A claim and its rollback failed: %v", err)
	}
	return engine.Database.Errorf("sqlstore: try a claim and roll it back: %w", err)
}

// tryClaims makes the claims in one transaction, and rolls it back. They register no window.
func (s *Store) tryClaims(ctx context.Context, claimed ...[]dedup.Record) error {
	t, err := s.begin(ctx, s.cfg.Isolation)
	if err != nil {
		return err
	}
	defer t.close() // rolls back
	seen := map[dedup.Key]bool{}
	for _, recs := range claimed {
		plan, err := claims.NewPlan(recs)
		if err != nil {
			return err
		}
		c := s.newClaim(plan, t.Tx)
		c.Own, c.IdleInTxTimeout = true, s.idleLimit
		c.AssumeRegistered()
		t.Claim = c
		answers, err := s.runClaim(ctx, c)
		if err != nil {
			t.Spoilt = errors.Is(err, dedup.ErrNotDurable)
			return err
		}
		for i, rec := range recs {
			want := dedup.First
			if seen[rec.Key] {
				want = dedup.Duplicate
			}
			if answers[i].Verdict != want {
				return fmt.Errorf("a claim of a key is answered with %v, want %v", answers[i].Verdict, want)
			}
			seen[rec.Key] = true
		}
	}
	return nil
}
