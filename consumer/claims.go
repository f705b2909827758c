package consumer

import (
	"context"
	"errors"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// claimAnswer is what the claims of one message mean.
type claimAnswer struct {
	at      int           // the item's place in items
	own     dedup.Verdict // of its own key
	run     bool          // otherwise it is a duplicate
	refused error         // why it must not run
}

// record is the record that claims an item's own key.
func (a *attempt[TTx]) record(it *item) dedup.Record {
	rec := a.b.c.cfg.claimRecord(it.rec)
	// if it has failed here, it is probably new
	rec.Redelivered = it.msg.Attempt > 1 && !a.b.c.memory.past(it.hash).Known()
	return rec
}

// read reads the claims of all messages before any handler runs: an error among them must not cost the work of a
// handler.
func (a *attempt[TTx]) read(ctx context.Context, tx TTx, claims []dedup.Claim) (refused error) {
	answers := make([]claimAnswer, len(a.todo))
	for j, i := range a.todo {
		n := 1 + len(a.item(j).aliases)
		ans, err := a.readClaim(ctx, tx, i, claims[0], claims[1:n])
		if err != nil {
			return err
		}
		answers[j], claims = ans, claims[n:]
	}
	a.answers = answers
	for j, ans := range answers {
		switch {
		case ans.refused != nil:
			a.culprits, refused = append(a.culprits, j), ans.refused
		case ans.run:
			a.first = append(a.first, j)
		}
	}
	return refused
}

// readClaim reads the claims of items[i]: of its own key and of its aliases.
func (a *attempt[TTx]) readClaim(ctx context.Context, tx TTx, i int, own dedup.Claim,
	aliases []dedup.Claim,
) (ans claimAnswer, err error) {
	b := a.b
	it := &b.items[i]
	ans = claimAnswer{at: i, own: own.Verdict}
	switch own.Verdict {
	case dedup.First:
		it.claimed = it.rec.Fingerprint
	case dedup.Duplicate, dedup.Mismatch, dedup.Unprovable:
		it.claimed = own.Fingerprint
	default:
		return ans, errors.New("consumer: the store answers a claim without a verdict")
	}
	known := false
	for _, alias := range aliases {
		known = known || alias.Verdict != dedup.First
	}
	doubt, doubtful := b.c.memory.doubt(it.hash)
	d := decide.Doubt{Any: doubtful}
	if doubtful && own.Verdict != dedup.First {
		if d.Maybe, err = doubt.mayBeCommitted(ctx, tx); err != nil {
			return ans, err
		}
	}
	run, refused, settled := decide.OfClaim(own.Verdict, d, known, b.c.cfg.MismatchIsDuplicate)
	if settled {
		b.c.memory.forgetDoubt(it.hash)
	}
	switch ans.run = run; {
	case refused == observe.CauseUnknown:
		ans.refused = refuse(refused, doubt.err)
	case refused != "":
		ans.refused = refuse(refused, refusedClaims[refused])
	case !run:
		err = a.forgetAliases(ctx, tx, it, aliases)
	}
	return ans, err
}

// refusedClaims are the errors of messages whose claims show that they must not run.
var refusedClaims = map[observe.Cause]error{
	observe.CauseMismatch: dedup.ErrMismatch, observe.CauseUnprovable: dedup.ErrUnprovable,
	observe.CauseKnownContent: ErrKnownContent,
}

// forgetAliases removes the claims of a duplicate's aliases, which must not claim anything.
func (a *attempt[TTx]) forgetAliases(ctx context.Context, tx TTx, it *item, aliases []dedup.Claim) error {
	for k, alias := range aliases {
		if alias.Verdict != dedup.First {
			continue
		}
		if err := a.b.c.cfg.Store.Forget(ctx, tx, it.aliases[k].Key); err != nil {
			return err
		}
	}
	return nil
}

// committed records that the claims of a message, and if it was new its handler's work, are committed.
func (a *attempt[TTx]) committed(ans claimAnswer) {
	b := a.b
	it := &b.items[ans.at]
	it.done, it.committed = true, true
	b.c.memory.committed(it.hash, ans.run)
	o := MessageOutcome{Outcome: observe.Duplicate, Key: it.rec.Key}
	switch {
	case ans.run:
		o.Outcome = observe.Processed
		it.ran, b.database.Worked = true, true
	case ans.own == dedup.Mismatch:
		o.Cause = observe.CauseMismatch
	}
	b.pass.outcome(ans.at, o)
}
