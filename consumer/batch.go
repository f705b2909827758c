package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

// batch is one pass over messages, of Process or ProcessBatch.
type batch[TTx any] struct {
	*Consumer[TTx]
	once
	items []item
	errs  []error
	held  map[string]*RetryError // by ordering key: a failure that what follows must not overtake
	lone  int                    // transactions of a single message that the database failed, in a row
	down  bool                   // the database is at fault: nothing more is tried
	last  *RetryError            // what its latest fault came to
	began time.Time
}

// once is how one pass differs from another.
type once struct {
	deferrals int           // how often in a row the messages were deferred without blame
	patience  time.Duration // how long to wait for keys in all; 0: as long as ctx lives
}

// process never sleeps.
func (c *Consumer[TTx]) process(ctx context.Context, msgs []*Message, o once) []error {
	b := &batch[TTx]{
		Consumer: c, once: o, began: time.Now(),
		items: make([]item, len(msgs)), errs: make([]error, len(msgs)),
		held: map[string]*RetryError{},
	}
	todo := make([]int, len(msgs))
	for i, msg := range msgs {
		todo[i] = i
		b.items[i] = c.intake(msg, b.began)
	}
	epoch := c.pause.now()
	if err := c.register(ctx); err != nil {
		b.fault(ctx, todo, epoch, err)
		return b.errs
	}
	defer b.lock(ctx)()
	b.run(ctx, todo)
	return b.errs
}

// run handles items[todo...] in one transaction; if that fails, without the culprits, or in halves where they are unknown.
func (b *batch[TTx]) run(ctx context.Context, todo []int) {
	todo = b.ready(ctx, todo)
	if len(todo) == 0 {
		return
	}
	epoch := b.pause.now()
	a := b.attempt(ctx, todo)
	switch {
	case a.err == nil:
		b.lone = 0
	case ctx.Err() != nil: // a shutdown counts against nobody, whatever it looks like
		b.retry(ctx, todo, &RetryError{Err: a.err, Blameless: true})
	case !a.handling && b.cfg.Store.Retryable(a.err): // nothing that depends on the messages has happened yet
		b.down = true
		b.fault(ctx, todo, epoch, a.err)
	case len(todo) == 1:
		b.judge(ctx, todo[0], epoch, a.err)
	case len(a.culprits) > 0: // each is tried alone: what another one did to the transaction is not its fault
		from := 0
		for _, at := range a.culprits {
			b.run(ctx, todo[from:at])
			b.run(ctx, todo[at:at+1])
			from = at + 1
		}
		b.run(ctx, todo[from:])
	default:
		b.run(ctx, todo[:len(todo)/2])
		b.run(ctx, todo[len(todo)/2:])
	}
}

// ready leaves out what is done, and holds back what must wait.
func (b *batch[TTx]) ready(ctx context.Context, todo []int) (ready []int) {
	for _, i := range todo {
		it := &b.items[i]
		switch before := b.held[it.msg.Key]; {
		case it.done:
		case before != nil:
			err := fmt.Errorf("held back behind an earlier message of key %q: %s", it.msg.Key, before.Err.Error())
			b.retry(ctx, []int{i}, &RetryError{Err: err, After: before.After, Blameless: true})
		case b.down:
			b.retry(ctx, []int{i}, b.last)
		default:
			ready = append(ready, i)
		}
	}
	return ready
}

// judge decides what becomes of a message that failed by itself.
func (b *batch[TTx]) judge(ctx context.Context, i, epoch int, err error) {
	msg := b.items[i].msg
	attempt := max(msg.Attempt, 1)
	asked, asks := errors.AsType[*RetryError](err)
	refused, isRefused := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		b.inFlight.again(ctx, b.cfg.Logger, &b.items[i], err)
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: b.cfg.wait(b.deferrals + 1), Blameless: true})
	case b.cfg.Store.Retryable(err): // also if the handler calls it permanent: it cannot know
		b.lone++
		b.down = b.lone >= 2
		b.fault(ctx, []int{i}, epoch, err)
	case isRefused:
		b.giveUp(ctx, i, refused.reason, err)
	case IsPermanent(err), neverCured(err):
		b.giveUp(ctx, i, ReasonPoison, err)
	case asks && asked.Blameless:
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: max(asked.After, 0), Blameless: true})
	case attempt >= b.cfg.MaxAttempts:
		b.giveUp(ctx, i, ReasonPoison, err)
	case asks:
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: max(asked.After, 0)})
	default:
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: b.cfg.wait(attempt)})
	}
}

// neverCured are errors of the store that another attempt would only meet again, or make worse: after ErrTxEnded each
// attempt may leave an effect behind.
func neverCured(err error) bool {
	return slices.ContainsFunc([]error{dedup.ErrTxEnded, dedup.ErrKeyCollision, dedup.ErrBadKey, dedup.ErrNoKey, dedup.ErrFuture},
		func(e error) bool { return errors.Is(err, e) })
}

// fault defers items[todo...] for a fault that is the database's.
func (b *batch[TTx]) fault(ctx context.Context, todo []int, epoch int, err error) {
	retry := &RetryError{Err: err, Blameless: true}
	b.last = retry
	if ctx.Err() == nil {
		retry.After = b.pause.fault(ctx, err, epoch, b.deferrals)
		e := Event{Consumer: b.cfg.Name, Err: err, Took: retry.After}
		if len(todo) == 1 {
			e.Message = b.items[todo[0]].msg
		}
		b.cfg.Trace.emit(ctx, onPaused, e)
	}
	b.retry(ctx, todo, retry)
}

// retry defers items[todo...].
func (b *batch[TTx]) retry(ctx context.Context, todo []int, retry *RetryError) {
	for _, i := range todo {
		hook := onRetried
		if errors.Is(retry.Err, dedup.ErrInFlight) {
			hook = onInFlight
		}
		b.cfg.Trace.emit(ctx, hook, Event{Consumer: b.cfg.Name, Message: b.items[i].msg, Err: retry.Err, Took: retry.After})
		b.fail(i, retry)
	}
}

// fail records what Process will return for items[i], which is not nil, and holds back what follows.
func (b *batch[TTx]) fail(i int, err error) {
	b.errs[i] = err
	key := b.items[i].msg.Key
	if key == "" || b.held[key] != nil {
		return
	}
	retry, ok := errors.AsType[*RetryError](err)
	if !ok {
		retry = &RetryError{Err: err}
	}
	b.held[key] = retry
}
