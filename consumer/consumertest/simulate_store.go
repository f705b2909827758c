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

type transactionKey struct{}

func transactionOf(ctx context.Context) *transaction {
	return ctx.Value(transactionKey{}).(*transaction)
}

// transaction is what the simulation knows about a transaction.
type transaction struct {
	p      *Process
	about  string
	tx     *deduptest.Tx
	letter *consumer.DeadLetter // that it writes
}

func (t *transaction) begun(tx *deduptest.Tx) {
	t.tx = tx
	t.p.begun(tx)
	tx.OnStatement = func(what string) error { return t.statement(what) }
	t.p.of.transactions.Store(tx, t)
}

// claimed is the boundary after the claims.
func (t *transaction) claimed(recs []dedup.Record, claims []dedup.Claim) error {
	for i, c := range claims {
		t.p.sim.Note("claim of %s: %v", recs[i].Key.ID, c.Verdict)
	}
	switch t.p.sim.At("claimed", t.about).Action {
	case sim.Gone, "cut":
		t.tx.Lose()
		return errCut
	case "serialization failure":
		return errSerial
	case "crash":
		t.p.sim.Crash()
		return errCut
	}
	return nil
}

// statement is the boundary before a statement.
func (t *transaction) statement(what string) error {
	if strings.HasPrefix(what, "update txonce call") {
		what = "delete the record of the call"
	}
	if at := strings.Index(what, letters); at >= 0 {
		what = "park"
		if t.letter != nil {
			what += " " + t.letter.Record.Key.ID
		}
	}
	switch t.p.sim.At("stmt", what).Action {
	case sim.Gone, "cut":
		t.tx.Lose()
		return errCut
	case "serialization failure":
		return errSerial
	case "crash":
		t.p.sim.Crash()
		return errCut
	case "delivery expires":
		t.p.of.in.expire(t.p)
		t.p.of.out.expire(t.p)
	}
	return nil
}

// commit is the boundary of COMMIT.
func (t *transaction) commit(ctx context.Context) error {
	p := t.p
	switch f := p.sim.At("commit", t.about); f.Action {
	case sim.Gone, "lost":
		t.tx.Lose()
		return errCut
	case "serialization failure":
		_ = t.tx.Rollback()
		return errSerial
	case "answer lost":
		_ = t.land(ctx)
		return errCut
	case "late", "late and lost":
		t.late(f.Action == "late")
		return errCut
	case "crash before":
		p.sim.Crash()
		return errCut
	case "crash after":
		_ = t.land(ctx)
		p.sim.Crash()
		return errCut
	case "crash, COMMIT on its way":
		t.late(true)
		p.sim.Crash()
		return errCut
	}
	if err := t.land(ctx); err != nil {
		return err
	}
	switch p.sim.At("answered", t.about).Action {
	case "crash":
		p.sim.Crash()
		return errCut
	case sim.Gone:
		return errCut
	}
	return nil
}

// late lets the server have the transaction, whose process does not know how it ends.
func (t *transaction) late(lands bool) {
	t.p.ended(t.tx)
	server := t.p.of.sim.NewProcess("server")
	t.p.of.sim.Go(func() {
		server.At("COMMIT arrives", t.about)
		server.At("COMMIT is done", t.about)
		if lands {
			_ = t.land(context.WithoutCancel(t.p.of.ctx))
		} else {
			t.tx.Lose()
		}
	})
}

// land commits, and checks that a letter does not stand beside an effect.
func (t *transaction) land(ctx context.Context) error {
	wrong := t.letter != nil && t.p.of.hasEffect(t.p, t.letter)
	if err := t.tx.Commit(ctx); err != nil {
		t.p.sim.Note("COMMIT of %s fails: %v", t.about, err)
		return err
	}
	if wrong {
		t.p.of.sim.Break("%s writes a dead letter of %s, whose effect is committed", t.p.Name(), t.letter.Record.Key.ID)
	}
	t.p.sim.Note("COMMIT of %s is done", t.about)
	return nil
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
