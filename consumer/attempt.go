package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// attempt is one transaction of a batch. Places are those in todo, ascending.
type attempt[TTx any] struct {
	b      *batch[TTx]
	todo   []int // places in b.items
	before int   // how many culprits come after these messages, see named
	plain  bool  // no handlers are interleaved

	err      error
	answers  []claimAnswer // as todo; nil: the claims could not be read
	first    []int         // places of the messages that run
	ran      []int         // places of those whose handlers were called
	culprits []int         // places of the messages that caused err, as far as known

	interleaved bool  // the handlers were interleaved
	complete    []int // places of those whose work was complete, and in the transaction, before the culprit ended it

	history        int64     // of the database when the transaction began
	began, claimed time.Time // claimed is zero if the store has not answered the claims
	measured       transaction
}

// attempt handles items[todo...] in one transaction.
func (b *batch[TTx]) attempt(ctx context.Context, todo []int, before int, plain bool) *attempt[TTx] {
	a := &attempt[TTx]{b: b, todo: todo, before: before, plain: plain || b.plain}
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
		recs = append(append(recs, a.record(it)), it.aliases...)
	}
	ctx = b.alone(ctx, todo)
	if b.c.cfg.ClaimLate && len(recs) == 1 && !b.c.memory.inDoubt(&b.items[todo[0]]) {
		ctx = driver.WithLateClaim(ctx, a.forget)
	}
	a.history = b.c.losses.Begin()
	a.measured, a.began = b.pass.transaction(len(todo)), time.Now()
	a.err = b.c.cfg.Store.InTx(b.claimWait.limited(ctx), recs,
		func(tx TTx, claims []dedup.Claim) error { return a.within(ctx, tx, claims) })
	if len(todo) == 1 {
		b.items[todo[0]].quick = !a.claimed.IsZero() && a.claimed.Sub(a.began) <= time.Since(a.claimed)/quickClaim
	}
	for _, j := range a.ran {
		a.item(j).called = true
	}
	return a
}

// item returns the item at a place.
func (a *attempt[TTx]) item(j int) *item { return &a.b.items[a.todo[j]] }

// tried says what the transaction had to do.
func (a *attempt[TTx]) tried() decide.Tried {
	_, probes := a.b.c.cfg.Store.(driver.KeyProber)
	return decide.Tried{
		Messages: len(a.todo), Claimed: !a.claimed.IsZero(), Ran: len(a.ran), Culprits: len(a.culprits),
		CanProbe: probes,
	}
}

// forget forgets what within did before the claim: nothing of it is committed.
func (a *attempt[TTx]) forget() {
	a.claimed, a.first, a.ran, a.culprits = time.Time{}, nil, nil, nil
}

// within does the work of the transaction, which has claimed the keys or will claim them at COMMIT, see Config.ClaimLate.
func (a *attempt[TTx]) within(ctx context.Context, tx TTx, claims []dedup.Claim) error {
	a.claimed = time.Now()
	a.measured.claimed()
	if err := a.read(ctx, tx, claims); err != nil || len(a.first) == 0 {
		return err
	}
	msgs, keys := a.copies(ctx)
	switch {
	case a.b.c.cfg.HandleBatch != nil:
		return a.together(ctx, tx, msgs, keys)
	case a.interleaves():
		return a.interleave(ctx, tx, msgs, keys)
	}
	return a.inTurn(ctx, tx, msgs, keys)
}

// copies returns copies of the messages that run, for the handler, and their keys. The copies have headers of their
// own: a goroutine that a handler leaves behind may write to them while the message is parked or traced, and no recover
// contains a map that two goroutines use at once.
func (a *attempt[TTx]) copies(ctx context.Context) ([]*Message, []dedup.Key) {
	n := len(a.first)
	msgs, given, keys := make([]*Message, n), make([]*Message, n), make([]dedup.Key, n)
	copies := make([]Message, n) // at once, because handlers may be short
	for k, j := range a.first {
		it := a.item(j)
		it.given = &copies[k]
		copies[k] = *it.msg
		copies[k].Headers = maps.Clone(it.msg.Headers)
		msgs[k], given[k], keys[k] = it.msg, it.given, it.rec.Key
	}
	a.b.pass.claimed(ctx, msgs)
	return given, keys
}

// together calls the BatchHandler.
func (a *attempt[TTx]) together(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	a.ran = a.first
	err := onOwnGoroutine("the handler", func() error { return a.b.c.cfg.handle(ctx, tx, msgs, keys) })
	a.culprits = a.named(err)
	return err
}

// mostNamed limits how often a pass believes a MessageError about messages that come before the message of another
// MessageError. Twice is enough if the first one was made before the BatchHandler did the others' work. A BatchHandler
// that always names the last message would cost a transaction for each message.
const mostNamed = 2

// named returns the place of the message that err, an error of the BatchHandler, names. After a timeout the message
// that ran last is named, which may have had too little time.
func (a *attempt[TTx]) named(err error) []int {
	named, ok := errors.AsType[*MessageError](err)
	if !ok || a.before >= mostNamed || errors.Is(err, ErrHandlerTimeout) {
		return nil
	}
	for _, j := range a.first {
		if a.item(j).given == named.Message {
			return []int{j}
		}
	}
	return nil
}

// inTurn calls the Handler for one message after the other. They share a goroutine, because one for each would cost as
// much as a short handler.
func (a *attempt[TTx]) inTurn(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	verifier, verifies := a.b.c.cfg.Store.(driver.TxVerifier[TTx])
	err := onOwnGoroutine("the handler", func() error {
		for k := range a.first {
			a.ran = a.first[:k+1]
			err := a.b.c.cfg.handle(ctx, tx, msgs[k:k+1], keys[k:k+1])
			if err == nil && verifies && k+1 < len(a.first) {
				err = verifier.VerifyTx(ctx, tx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.culprits = a.ran[len(a.ran)-1:]
	}
	return err
}

// verifies reports whether the transaction was verified after each handler, so that only the last one can have ended
// it.
func (a *attempt[TTx]) verifies() bool {
	_, verifies := a.b.c.cfg.Store.(driver.TxVerifier[TTx])
	return verifies && a.b.c.cfg.HandleBatch == nil
}

// conclude records what the transaction shows, and returns what is known about its failure, if it has failed.
func (a *attempt[TTx]) conclude(ctx context.Context) (f decide.Failure) {
	b := a.b
	switch {
	case a.err != nil:
		f = b.c.classify.failure(ctx, a.err)
		if a.began.IsZero() { // refused without a transaction
			return f
		}
		if f.InFlight && a.claimed.IsZero() {
			b.claimWait.waited()
		}
		f = a.findDoubts(f)
	default:
		for _, ans := range a.answers {
			a.committed(ans)
		}
		if len(a.first) > 0 {
			b.c.losses.Committed(a.history, a.item(a.first[0]).rec.Key, len(a.first))
		}
		done := event{what: committed, at: ofClaims, messages: len(a.todo), ran: len(a.ran)}
		if len(a.ran) > 0 { // duplicates prove nothing about handlers
			done.at, b.database.Faults = ofHandlers, 0
		}
		b.c.gate.report(ctx, done)
	}
	a.limit(ctx, f)
	a.measure(ctx)
	return f
}

// limit reports what says how many messages may share the next transactions, and how.
func (a *attempt[TTx]) limit(ctx context.Context, f decide.Failure) {
	took := time.Since(a.began)
	switch {
	case a.interleaved && a.err == nil:
		a.b.c.gate.report(ctx, event{what: interleaveWorked})
	case a.interleaved && ctx.Err() == nil:
		a.b.plain = true
		a.b.c.gate.report(ctx, event{what: interleaveBroke, took: took})
	case a.interleaved:
	case a.err != nil && decide.Collided(f, a.tried()):
		a.b.c.gate.report(ctx, event{what: collided, messages: len(a.todo), took: took})
	}
}

// measure ends the measurement of the transaction.
func (a *attempt[TTx]) measure(ctx context.Context) {
	t := &a.measured
	if t.pass == nil {
		return
	}
	t.attempt.Retry = slices.ContainsFunc(a.todo, func(i int) bool { return a.b.items[i].msg.Attempt > 1 })
	t.attempt.Ran = len(a.ran)
	t.end(ctx, a.b.c.classify.result(a.err), a.b.c.classify.causeIn(ctx, a.err), a.err)
}
