package consumertest

import (
	"context"
	"strings"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

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
	claims []dedup.Key          // that it has made
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
		if c.Verdict == dedup.First {
			t.claims = append(t.claims, recs[i].Key)
		}
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
		t.late(ctx, f.Action == "late")
		return errCut
	case "crash before":
		p.sim.Crash()
		return errCut
	case "crash after":
		_ = t.land(ctx)
		p.sim.Crash()
		return errCut
	case "crash, COMMIT on its way":
		t.late(ctx, true)
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
func (t *transaction) late(ctx context.Context, lands bool) {
	t.p.ended(t.tx)
	server := t.p.of.sim.NewProcess("server")
	t.p.of.sim.Go(func() {
		server.At("COMMIT arrives", t.about)
		server.At("COMMIT is done", t.about)
		if lands {
			_ = t.land(context.WithoutCancel(ctx))
		} else {
			t.tx.Lose()
		}
	})
}

// land commits, and checks that a letter does not stand beside an effect.
func (t *transaction) land(ctx context.Context) error {
	wrong := t.letter != nil && t.p.of.hasEffect(t, t.letter)
	discards, is := ctx.Value(discardKey{}).(dedup.Key)
	before := is && t.p.of.claimed(discards)
	if err := t.tx.Commit(ctx); err != nil {
		t.p.sim.Note("COMMIT of %s fails: %v", t.about, err)
		return err
	}
	t.p.of.landed(t)
	if is {
		t.p.of.discarded(discards, before)
	}
	if wrong {
		t.p.of.sim.Break("%s writes a dead letter of %s, whose effect is committed", t.p.Name(), t.letter.Record.Key.ID)
	}
	t.p.sim.Note("COMMIT of %s is done", t.about)
	return nil
}
