package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// attempt is the outcome of one transaction.
type attempt struct {
	err      error
	claimed  bool  // the store has answered the claims
	ran      int   // how many handlers were called
	ended    bool  // a handler ended the transaction, which may be committed without the handlers' effects
	culprits []int // places in todo, ascending, of the messages that caused err, as far as known

	interleaved bool  // the handlers ran side by side
	complete    []int // places in todo of those whose work was complete, and in the transaction, before the culprit ended it
}

// attempt handles items[todo...] in one transaction.
func (b *batch[TTx]) attempt(ctx context.Context, todo []int) (a attempt) {
	for j, i := range todo {
		if err := b.items[i].refused; err != nil { // refused without a transaction
			a.err, a.culprits = err, append(a.culprits, j)
		}
	}
	if a.err != nil {
		return a
	}
	recs := make([]dedup.Record, 0, len(todo))
	for _, i := range todo {
		it := &b.items[i]
		it.called = false
		recs = append(append(recs, b.record(it)), it.aliases...)
	}
	measured := b.pass.transaction(len(todo))
	ctx = b.alone(ctx, todo)
	began, claimed := time.Now(), time.Time{}
	verifier, verifies := b.c.cfg.Store.(driver.TxVerifier[TTx])
	verifies = verifies && b.c.cfg.HandleBatch == nil // after each handler
	var answers []claimAnswer
	var ran []int // places in todo of the messages whose handler was called
	a.err = b.c.cfg.Store.InTx(b.claimWait.limited(ctx), recs, func(tx TTx, claims []dedup.Claim) (err error) {
		a.claimed, claimed = true, time.Now()
		measured.claimed()
		answers, err = b.readClaims(ctx, tx, todo, claims)
		var first []int // places in todo of the messages that run
		for j, ans := range answers {
			switch {
			case ans.refused != nil:
				a.culprits = append(a.culprits, j)
				err = ans.refused
			case ans.verdict == dedup.First:
				first = append(first, j)
			}
		}
		if err != nil || len(first) == 0 {
			return err
		}
		msgs, keys := b.claimed(ctx, answers, first)
		if b.c.cfg.HandleBatch != nil {
			ran = first
			err := onOwnGoroutine("the handler", func() error { return b.c.handle(ctx, tx, msgs, keys) })
			a.culprits = b.named(err, answers, first)
			return err
		}
		if b.interleaves(answers, first) {
			ran, a.interleaved = first, true
			failed, err := b.interleave(ctx, tx, msgs, keys)
			if failed >= 0 {
				a.culprits = first[failed : failed+1]
				if errors.Is(err, dedup.ErrTxEnded) {
					a.complete = first[:failed]
				}
			}
			return err
		}
		// One goroutine for all handlers, because one for each would cost as much as a short handler.
		err = onOwnGoroutine("the handler", func() error {
			for k := range first {
				ran = first[:k+1]
				err := b.c.handle(ctx, tx, msgs[k:k+1], keys[k:k+1])
				if err == nil && verifies && k+1 < len(first) {
					err = verifier.VerifyTx(ctx, tx)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			a.culprits = ran[len(ran)-1:]
		}
		return err
	})
	if len(todo) == 1 && a.claimed {
		b.items[todo[0]].quick = claimed.Sub(began) < time.Since(claimed)/quickClaim
	}
	a.ran = len(ran)
	for _, j := range ran {
		b.items[todo[j]].called = true
	}
	switch {
	case a.err == nil:
		for _, ans := range answers {
			b.committed(ans)
		}
		if a.ran > 0 {
			b.c.pause.recovered(ctx, ofHandlers)
		} else {
			b.c.pause.recovered(ctx, ofClaims)
		}
	case !a.claimed && errors.Is(a.err, dedup.ErrInFlight):
		b.claimWait.waited()
	case len(ran) > 0:
		b.findDoubts(&a, answers, ran, verifies)
		if a.ended && len(todo) == 1 && b.items[todo[0]].refused != nil {
			a.err = b.items[todo[0]].refused
		}
	}
	b.measured(ctx, &measured, todo, len(ran), a.err)
	return a
}

// measured ends the measurement of a transaction with items[todo...].
func (b *batch[TTx]) measured(ctx context.Context, t *transaction, todo []int, ran int, err error) {
	if t.pass == nil {
		return
	}
	t.attempt.Retry = slices.ContainsFunc(todo, func(i int) bool { return b.items[i].msg.Attempt > 1 })
	t.attempt.Ran = ran
	t.end(ctx, b.c.result(err), b.c.causeIn(ctx, err), err)
}

// mostNamed limits how often a pass believes a MessageError about messages that come before the message of another MessageError.
// Twice is enough if the first one was made before the BatchHandler did the others' work. A BatchHandler that always names the
// last message would cost a transaction for each message.
const mostNamed = 2

// named returns the place of the message that err, an error of the BatchHandler, names. places are those of its messages. After a
// timeout the message that ran last is named, which may have had too little time.
func (b *batch[TTx]) named(err error, answers []claimAnswer, places []int) []int {
	named, ok := errors.AsType[*MessageError](err)
	if !ok || b.before >= mostNamed || errors.Is(err, ErrHandlerTimeout) {
		return nil
	}
	for _, j := range places {
		if answers[j].item.given == named.Message {
			return []int{j}
		}
	}
	return nil
}

// findDoubts finds out whether a transaction that failed after the handlers of ran were called may be committed all the
// same, without all of the handlers' effects. verifies says that the transaction was verified after each handler, so that only
// the last one can have ended it. Of handlers that ran side by side, it is the one that Fork has named. Others may have done a part of
// their work. Also if they had returned, Fork may still have had their outbox messages, unless they are a.complete.
func (b *batch[TTx]) findDoubts(a *attempt, answers []claimAnswer, ran []int, verifies bool) {
	suspects := ran
	switch {
	case a.interleaved && len(a.culprits) > 0:
		suspects, ran = a.culprits, slices.Concat(a.complete, a.culprits)
	case a.interleaved:
		verifies = false
	case verifies:
		suspects = ran[len(ran)-1:]
	}
	ended := errors.Is(a.err, dedup.ErrTxEnded)
	if ended && verifies {
		a.culprits = suspects
	}
	inDoubt, _ := errors.AsType[*dedup.InDoubtError](a.err)
	switch {
	case ended && !errors.Is(a.err, dedup.ErrRolledBack):
		a.culprits = suspects
		b.addDoubts(a, answers, ran, suspects, true)
		a.err, a.ended = &unknownError{err: a.err, sure: true}, true
	case inDoubt != nil: // probably the database's fault
		b.addDoubts(a, answers, ran, suspects, false)
	}
}

// claimAnswer is what the claims of one message mean.
type claimAnswer struct {
	item    *item
	at      int           // the item's place in items
	own     dedup.Verdict // of its own key
	verdict dedup.Verdict // First: run it; Duplicate: do nothing
	refused error         // why it must not run
}

// readClaims reads the claims of items[todo...] before any handler runs: an error among them must not cost the work of a handler.
func (b *batch[TTx]) readClaims(ctx context.Context, tx TTx, todo []int, claims []dedup.Claim) ([]claimAnswer, error) {
	answers := make([]claimAnswer, len(todo))
	for j, i := range todo {
		it := &b.items[i]
		n := 1 + len(it.aliases)
		ans, err := b.readClaim(ctx, tx, it, claims[0], claims[1:n])
		if err != nil {
			return nil, err
		}
		ans.at = i
		answers[j], claims = ans, claims[n:]
	}
	return answers, nil
}

func (b *batch[TTx]) readClaim(ctx context.Context, tx TTx, it *item, own dedup.Claim, aliases []dedup.Claim) (ans claimAnswer, err error) {
	ans = claimAnswer{item: it, own: own.Verdict, verdict: own.Verdict}
	it.claimed = own.Fingerprint
	switch own.Verdict {
	case dedup.First:
		it.claimed = it.rec.Fingerprint
		for _, alias := range aliases {
			if alias.Verdict != dedup.First {
				ans.refused = refuse(observe.CauseKnownContent, ErrKnownContent)
			}
		}
	case dedup.Duplicate: // below
	case dedup.Mismatch:
		if b.c.cfg.OnMismatch == MismatchIsDuplicate {
			ans.verdict = dedup.Duplicate
		} else {
			ans.refused = refuse(observe.CauseMismatch, dedup.ErrMismatch)
		}
	case dedup.Unprovable:
		ans.refused = refuse(observe.CauseUnprovable, dedup.ErrUnprovable)
	default:
		return ans, errors.New("consumer: the store answers a claim without a verdict")
	}
	doubt, doubtful := b.c.doubts.of(it.hash)
	if doubtful {
		doubtful = own.Verdict != dedup.First // a new claim shows that the transaction in doubt is not committed
		if doubtful {
			if doubtful, err = doubt.mayBeCommitted(ctx, tx); err != nil {
				return ans, err
			}
		}
		if !doubtful {
			b.c.doubts.forget(it.hash)
		}
	}
	switch {
	case ans.verdict != dedup.Duplicate:
		return ans, nil
	case doubtful:
		ans.refused = refuse(observe.CauseUnknown, doubt.err)
		return ans, nil
	}
	for k, alias := range aliases { // a duplicate must not claim anything
		if alias.Verdict != dedup.First {
			continue
		}
		if err := b.c.cfg.Store.Forget(ctx, tx, it.aliases[k].Key); err != nil {
			return ans, err
		}
	}
	return ans, nil
}

// claimed returns copies of the messages at places, for the handler, and their keys. The copies have headers of their own: a goroutine that a
// handler leaves behind may write to them while the message is parked or traced, and no recover contains a map that two goroutines use at once.
func (b *batch[TTx]) claimed(ctx context.Context, answers []claimAnswer, places []int) ([]*Message, []dedup.Key) {
	msgs, given, keys := make([]*Message, len(places)), make([]*Message, len(places)), make([]dedup.Key, len(places))
	copies := make([]Message, len(places)) // at once, because handlers may be short
	for k, j := range places {
		it := answers[j].item
		it.given = &copies[k]
		copies[k] = *it.msg
		copies[k].Headers = maps.Clone(it.msg.Headers)
		msgs[k], given[k], keys[k] = it.msg, it.given, it.rec.Key
	}
	b.pass.claimed(ctx, msgs)
	return given, keys
}

// handle calls the handler for msgs, which were claimed under keys. Without a HandleBatch, msgs is a single message. If the handler
// calls runtime.Goexit, handle does not return.
func (c *Consumer[TTx]) handle(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	if c.cfg.HandleBatch != nil {
		ctx, end := withScopes(ctx, msgs, keys)
		defer end()
		return c.timed(ctx, keys[0], msgs, func(ctx context.Context) error { return c.cfg.HandleBatch(ctx, tx, msgs) })
	}
	ctx, end := outbox.WithScope(ctx, seed(keys[0]))
	defer end()
	return c.timed(ctx, keys[0], msgs, func(ctx context.Context) error { return c.cfg.Handle(ctx, tx, msgs[0]) })
}

func (b *batch[TTx]) committed(ans claimAnswer) {
	it, ran := ans.item, ans.verdict == dedup.First
	it.done, it.committed = true, true
	b.c.history.forget(it.hash, ran)
	b.c.doubts.forget(it.hash)
	if ran {
		it.ran, b.worked = true, true
	}
	switch {
	case ran:
		b.pass.outcome(ans.at, MessageOutcome{Outcome: observe.Processed, Key: it.rec.Key})
	case ans.own == dedup.Mismatch:
		b.pass.outcome(ans.at, MessageOutcome{Outcome: observe.Duplicate, Cause: observe.CauseMismatch, Key: it.rec.Key})
	default:
		b.pass.outcome(ans.at, MessageOutcome{Outcome: observe.Duplicate, Key: it.rec.Key})
	}
}

// record is the record that claims an item's own key.
func (b *batch[TTx]) record(it *item) dedup.Record {
	rec := b.c.claimRecord(it.rec)
	rec.Redelivered = it.msg.Attempt > 1 && !b.c.history.knows(it.hash) // if it has failed here, it is probably new
	return rec
}
