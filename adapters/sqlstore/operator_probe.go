package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/claims"
)

const (
	probeWait  = time.Second            // for a transaction that holds the key, or the whole database
	holderWait = 200 * time.Millisecond // until the server is asked which one that is
)

// Probe implements ops.Prober. On SQLite a transaction that writes holds the whole database.
func (o operators) Probe(ctx context.Context, rec dedup.Record) (p ops.Probe, err error) {
	s := o.store
	plan, err := claims.NewPlan([]dedup.Record{rec})
	if err != nil {
		return p, err
	}
	for range claims.Attempts {
		if s.db.KeyProber == nil {
			p, err = s.probeWriter(ctx, plan, rec)
		} else {
			p, err = s.probe(ctx, ctx, plan)
		}
		if !errors.Is(err, claims.ErrAgain) {
			return p, err
		}
	}
	return p, engine.Database.Errorf("sqlstore: probe: %w", err)
}

// probe claims and rolls back. entering limits the wait for a transaction that may write.
func (s *Store) probe(entering, ctx context.Context, plan *claims.Plan) (p ops.Probe, err error) {
	t, err := s.begin(entering, sql.LevelReadCommitted)
	if err != nil {
		return p, err
	}
	defer t.close() // rolls back
	c := s.newClaim(plan, t.Tx)
	c.Own, c.IdleInTxTimeout = true, s.idleLimit
	c.AssumeRegistered()
	t.Claim = c
	holder := s.watch(ctx, t.Tx)
	answers, err := s.runClaim(driver.WithClaimWait(ctx, probeWait), c)
	held := holder()
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		return ops.Probe{InFlight: true, Holder: held}, nil
	case err != nil:
		return p, err
	}
	return ops.Probe{Claim: answers[0]}, nil
}

// probeWriter is probe on SQLite. While another transaction writes, a claim that is committed is a duplicate or a
// mismatch all the same.
func (s *Store) probeWriter(ctx context.Context, plan *claims.Plan, rec dedup.Record) (ops.Probe, error) {
	entering, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	p, err := s.probe(entering, ctx, plan)
	if err == nil || ctx.Err() != nil || entering.Err() == nil && !s.fault(err).Busy && !errors.Is(err,
		dedup.ErrInFlight) {
		return p, err
	}
	claim, found, err := s.Lookup(ctx, rec.Key)
	if err != nil {
		return ops.Probe{}, err
	}
	if found {
		claim.Verdict = claims.Known(rec, claim)
		return ops.Probe{Claim: claim}, nil
	}
	return ops.Probe{InFlight: true, WholeDatabase: true}, nil
}

// watch looks for the transaction that tx waits for. stop ends the search and returns what was found; nil: tx waits for
// none, or the server does not say.
func (s *Store) watch(ctx context.Context, tx *sql.Tx) (stop func() *ops.Holder) {
	if s.db.Holders == nil {
		return func() *ops.Holder { return nil }
	}
	session, err := s.db.Holders.Session(ctx, tx)
	if err != nil {
		return func() *ops.Holder { return nil } // the claim meets the error, too
	}
	asking, cancel := context.WithCancel(ctx)
	found := make(chan *ops.Holder, 1)
	go func() {
		if await.Sleep(asking, holderWait) != nil {
			found <- nil
			return
		}
		h, err := s.db.Holders.Holder(asking, s.cfg.DB, session)
		if err != nil {
			found <- nil
			return
		}
		found <- &h
	}()
	return func() *ops.Holder {
		cancel()
		return <-found
	}
}
