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
	a.err = b.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) (err error) {
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
		if b.cfg.HandleBatch != nil {
			return b.handleBatch(ctx, tx, answers)
		}
		for j, ans := range answers {
			if ans.verdict != dedup.First {
				continue
			}
			if err := b.handle(ctx, tx, ans.rec.Key, ans.msg); err != nil {
				a.culprits = []int{j}
				return err
			}
		}
		return nil
	})
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
		case dedup.Duplicate:
			b.trace(ctx, onDuplicate, it.msg, nil)
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
		answers[j] = ans
		if ans.verdict != dedup.Duplicate {
			continue
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

func (c *Consumer[TTx]) handle(ctx context.Context, tx TTx, key dedup.Key, msg *Message) (err error) {
	c.cfg.Trace.emit(ctx, onClaimed, Event{Consumer: c.cfg.Name, Message: msg})
	defer recovered(&err)
	if c.cfg.Handle == nil {
		ctx, end := withScopes(ctx, func(*Message) dedup.Key { return key })
		defer end()
		return c.cfg.HandleBatch(ctx, tx, []*Message{msg})
	}
	ctx, end := outbox.WithScope(ctx, seed(key))
	defer end()
	return c.cfg.Handle(ctx, tx, msg)
}

func (b *batch[TTx]) handleBatch(ctx context.Context, tx TTx, answers []answer) (err error) {
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
	defer recovered(&err)
	ctx, end := withScopes(ctx, func(msg *Message) dedup.Key { return keys[msg] })
	defer end()
	return b.cfg.HandleBatch(ctx, tx, msgs)
}

func (b *batch[TTx]) committed(ctx context.Context, ans answer) {
	ans.done, ans.committed = true, true
	b.inFlight.over(ans.derived)
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
