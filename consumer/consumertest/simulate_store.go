package consumertest

import (
	"context"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/sim"
)

// ProcessStore is the Store of a Process. It has a boundary wherever the process talks to the database.
type ProcessStore struct {
	*Store
	p *Process
}

var (
	_ dedup.Store[*deduptest.Tx]               = (*ProcessStore)(nil)
	_ consumerdriver.ParkingLot[*deduptest.Tx] = (*ProcessStore)(nil)
	_ driver.TxVerifier[*deduptest.Tx]         = (*ProcessStore)(nil)
	_ driver.KeyProber                         = (*ProcessStore)(nil)
)

// claimWait is how long a claim waits for a key that another transaction holds.
const claimWait = 50 * time.Millisecond

// Store returns a store on the database that all processes share.
func (p *Process) Store() *ProcessStore {
	s := NewStoreOn(p.of.db)
	s.OnBegin = func(ctx context.Context, tx *deduptest.Tx) { transactionOf(ctx).begun(tx) }
	s.OnCommit = func(ctx context.Context, _ *deduptest.Tx) error { return transactionOf(ctx).commit(ctx) }
	return &ProcessStore{s, p}
}

// InTx implements dedup.Store.
func (s *ProcessStore) InTx(ctx context.Context, recs []dedup.Record,
	fn func(tx *deduptest.Tx, claims []dedup.Claim) error,
) error {
	p, about := s.p, idsOf(recs)
	switch f := p.sim.At("begin", about); f.Action {
	case sim.Gone, "refused":
		return errCut
	case "crash":
		p.sim.Crash()
		return errCut
	case "outage":
		p.of.outage(p, f.For)
	}
	t := &transaction{p: p, about: about}
	wait, _ := driver.ClaimWait(ctx, claimWait)
	ctx = context.WithValue(driver.WithClaimWait(ctx, p.sim.Unlike(wait)), transactionKey{}, t)
	err := s.Store.InTx(ctx, recs,
		func(tx *deduptest.Tx, claims []dedup.Claim) error {
			if err := t.claimed(recs, claims); err != nil {
				return err
			}
			err := fn(tx, claims)
			if err != nil {
				p.sim.Note("the transaction of %s fails: %v", about, err)
				if p.sim.At("rollback", about).Action == "crash" {
					p.sim.Crash()
				}
			}
			return err
		})
	p.ended(t.tx)
	p.of.transactions.Delete(t.tx)
	return err
}

// Register implements driver.Registrar. In a relay's process it is no boundary, because package calls holds a mutex
// then, for which other goroutines may wait.
func (s *ProcessStore) Register(ctx context.Context, name string, window time.Duration) error {
	if s.p.role == roleRelay {
		return s.Store.Register(ctx, name, window)
	}
	switch s.p.sim.At("register", name).Action {
	case sim.Gone, "refused":
		return errCut
	case "crash":
		s.p.sim.Crash()
		return errCut
	}
	return s.Store.Register(ctx, name, window)
}

// HeldKeys implements driver.KeyProber.
func (s *ProcessStore) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	switch s.p.sim.At("held keys", "").Action {
	case sim.Gone, "cut":
		return nil, errCut
	case "crash":
		s.p.sim.Crash()
		return nil, errCut
	}
	return s.Store.HeldKeys(ctx, keys)
}

// Park implements driver.ParkingLot.
func (s *ProcessStore) Park(ctx context.Context, tx *deduptest.Tx, letter consumer.DeadLetter) error {
	if t, ok := s.p.of.transactions.Load(tx); ok {
		t.(*transaction).letter = &letter
	}
	return s.Store.Park(ctx, tx, letter)
}

// idsOf names records.
func idsOf(recs []dedup.Record) string {
	var b strings.Builder
	for i, r := range recs {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.Key.ID)
	}
	return b.String()
}

// outage stops the database for a while.
func (w *world) outage(p *Process, d time.Duration) {
	w.db.Stop()
	p.sim.Note("the database is away for %v", d.Round(time.Millisecond))
	again := time.NewTimer(p.sim.Unlike(d))
	w.sim.Go(func() {
		defer again.Stop()
		select {
		case <-again.C:
		case <-w.ctx.Done():
		}
		w.db.Start()
	})
}
