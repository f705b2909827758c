package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// attempt is what one transaction came to.
type attempt struct {
	err      error
	handling bool  // the claims were answered
	ended    bool  // a handler ended the transaction: what it claimed may be committed, without effects
	culprits []int // of todo, in order: whose fault err is, as far as known
}

// attempt handles items[todo...] in one transaction.
func (b *batch[TTx]) attempt(ctx context.Context, todo []int) (a attempt) {
	for j, i := range todo {
		if err := b.items[i].refused; err != nil { // needs no transaction to be known
			a.err, a.culprits = err, append(a.culprits, j)
		}
	}
	if a.err != nil {
		return a
	}
	recs := make([]dedup.Record, 0, len(todo))
	for _, i := range todo {
		recs = append(append(recs, b.ask(b.items[i].rec)), b.items[i].also...)
	}
	var answers []answer
	verifier, _ := b.cfg.Store.(dedup.TxVerifier[TTx])
	var ran []int // of answers
	a.err = b.cfg.Store.InTx(b.wait.limited(ctx), recs, func(tx TTx, claims []dedup.Claim) (err error) {
		a.handling = true
		answers, err = b.answers(ctx, tx, todo, claims)
		for j, ans := range answers {
			if ans.refused != nil {
				a.culprits = append(a.culprits, j)
				err = ans.refused
			}
		}
		if err != nil {
			return err
		}
		first := firstOf(answers)
		if b.cfg.HandleBatch != nil {
			ran = first
			return b.handleBatch(ctx, tx, answers)
		}
		for k, j := range first {
			ran = append(ran, j)
			err := b.handle(ctx, tx, answers[j].rec.Key, answers[j].msg)
			if err == nil && verifier != nil && k+1 < len(first) {
				err = verifier.VerifyTx(ctx, tx)
			}
			if err != nil {
				a.culprits = []int{j}
				return err
			}
		}
		return nil
	})
	if !a.handling && errors.Is(a.err, dedup.ErrInFlight) {
		b.wait.waited()
	}
	looked := verifier != nil && b.cfg.HandleBatch == nil // after each handler
	if a.culprits == nil && looked && len(ran) > 0 && errors.Is(a.err, dedup.ErrTxEnded) {
		a.culprits = ran[len(ran)-1:] // the handlers before it left the transaction alone
	}
	inDoubt, _ := errors.AsType[*dedup.InDoubtError](a.err)
	ended := errors.Is(a.err, dedup.ErrTxEnded) && !errors.Is(a.err, dedup.ErrRolledBack)
	switch a.ended = len(ran) > 0 && ended; {
	case a.ended:
		if !looked {
			a.culprits = ran
		}
		b.doubt(answers, ran, a.culprits, true, a.err)
		a.err = &unknownError{err: a.err}
		if len(todo) == 1 && b.items[todo[0]].refused != nil {
			a.err = b.items[todo[0]].refused
		}
	case len(ran) > 0 && inDoubt != nil: // the database's fault, as far as known
		last := ran
		if looked {
			last = ran[len(ran)-1:]
		}
		b.doubt(answers, ran, last, false, a.err)
	}
	if a.err != nil {
		return a
	}
	for _, ans := range answers {
		b.committed(ctx, ans)
	}
	b.pause.over(ctx)
	return a
}

// answer is what the claims of one message say.
type answer struct {
	*item
	verdict dedup.Verdict // First: run it; Duplicate: do nothing
	refused error
}

// firstOf returns the places of the answers whose messages are to run.
func firstOf(answers []answer) (first []int) {
	for j, ans := range answers {
		if ans.verdict == dedup.First {
			first = append(first, j)
		}
	}
	return first
}

// answers reads claims before any handler runs, so that none runs for nothing.
func (b *batch[TTx]) answers(ctx context.Context, tx TTx, todo []int, claims []dedup.Claim) ([]answer, error) {
	answers := make([]answer, len(todo))
	for j, i := range todo {
		it := &b.items[i]
		own, also := claims[0], claims[1:1+len(it.also)]
		claims = claims[1+len(it.also):]
		ans := answer{item: it, verdict: own.Verdict}
		it.row = own.Fingerprint
		switch own.Verdict {
		case dedup.First:
			it.row = it.rec.Fingerprint
			for _, further := range also {
				if further.Verdict != dedup.First {
					ans.refused = refuse(ReasonReplay, ErrSuspectedReplay)
				}
			}
		case dedup.Duplicate: // below
		case dedup.Mismatch:
			b.trace(ctx, onMismatch, it.msg, dedup.ErrMismatch)
			if b.cfg.OnMismatch == MismatchIsDuplicate {
				ans.verdict = dedup.Duplicate
			} else {
				ans.refused = refuse(ReasonMismatch, dedup.ErrMismatch)
			}
		case dedup.Unprovable:
			b.trace(ctx, onUnprovable, it.msg, dedup.ErrUnprovable)
			ans.refused = refuse(ReasonUnprovable, dedup.ErrUnprovable)
		default:
			return nil, errors.New("consumer: the store answers a claim without a verdict")
		}
		doubt, doubtful := b.doubts.of(it.derived)
		stands := own.Verdict != dedup.First // if not, the transaction that ended has not committed the claim
		if doubtful && stands {
			var err error
			if stands, err = doubt.stands(ctx, tx); err != nil {
				return nil, err
			}
		}
		if doubtful && !stands {
			b.doubts.over(it.derived)
			doubtful = false
		}
		if doubtful = doubtful && ans.verdict == dedup.Duplicate; doubtful {
			ans.refused = refuse(ReasonUnknown, doubt.cause)
		}
		answers[j] = ans
		if ans.verdict != dedup.Duplicate || doubtful {
			continue
		}
		if own.Verdict == dedup.Duplicate {
			b.trace(ctx, onDuplicate, it.msg, nil)
		}
		for k, further := range also { // a duplicate leaves nothing behind
			if further.Verdict != dedup.First {
				continue
			}
			if err := b.cfg.Store.Forget(ctx, tx, it.also[k].Key); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

func (c *Consumer[TTx]) handle(ctx context.Context, tx TTx, key dedup.Key, msg *Message) error {
	c.cfg.Trace.emit(ctx, onClaimed, Event{Consumer: c.cfg.Name, Message: msg})
	if c.cfg.Handle == nil {
		ctx, end := withScopes(ctx, func(*Message) dedup.Key { return key })
		defer end()
		return c.timed(ctx, key, []*Message{msg}, func(ctx context.Context) error { return c.cfg.HandleBatch(ctx, tx, []*Message{msg}) })
	}
	ctx, end := outbox.WithScope(ctx, seed(key))
	defer end()
	return c.timed(ctx, key, []*Message{msg}, func(ctx context.Context) error { return c.cfg.Handle(ctx, tx, msg) })
}

func (b *batch[TTx]) handleBatch(ctx context.Context, tx TTx, answers []answer) error {
	var msgs []*Message
	keys := make(map[*Message]dedup.Key, len(answers))
	for _, ans := range answers {
		if ans.verdict == dedup.First {
			msgs = append(msgs, ans.msg)
			keys[ans.msg] = ans.rec.Key
			b.trace(ctx, onClaimed, ans.msg, nil)
		}
	}
	if len(msgs) == 0 {
		return nil
	}
	ctx, end := withScopes(ctx, func(msg *Message) dedup.Key { return keys[msg] })
	defer end()
	return b.timed(ctx, keys[msgs[0]], msgs, func(ctx context.Context) error { return b.cfg.HandleBatch(ctx, tx, msgs) })
}

func (b *batch[TTx]) committed(ctx context.Context, ans answer) {
	ans.done, ans.committed = true, true
	b.inFlight.over(ans.derived)
	b.processed(ans.item, ans.verdict == dedup.First)
	b.doubts.over(ans.derived)
	if ans.verdict == dedup.First {
		b.trace(ctx, onCommitted, ans.msg, nil)
	}
}

func (b *batch[TTx]) trace(ctx context.Context, hook func(*Trace) func(context.Context, Event), msg *Message, err error) {
	if b.cfg.Trace == nil {
		return
	}
	b.cfg.Trace.emit(ctx, hook, Event{Consumer: b.cfg.Name, Message: msg, Err: err, Took: time.Since(b.began)})
}
