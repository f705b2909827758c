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
	held  map[string]heldBack // by ordering key
	lone  int                 // transactions of a single message that the database failed, in a row
	works bool                // a handler's work was committed in this pass
	down  bool                // the database is at fault: nothing more is tried
	last  *RetryError         // what its latest fault came to
	wait  claimWait
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
		held: map[string]heldBack{},
	}
	todo := make([]int, len(msgs))
	for i, msg := range msgs {
		todo[i] = i
		b.items[i] = c.intake(msg)
	}
	epoch := c.pause.now()
	if err := c.register(ctx); errors.Is(err, ErrClosed) {
		b.retry(ctx, todo, &RetryError{Err: err, After: c.cfg.wait(1), Uncounted: true})
		return b.errs
	} else if err != nil {
		b.fault(ctx, todo, epoch, err)
		return b.errs
	}
	defer b.lock(ctx)()
	for i := range b.items { // under the keys' locks: another call may have ended a transaction just now
		if err := c.unknown(&b.items[i]); err != nil && b.items[i].refused == nil {
			b.items[i].refused = err
		}
	}
	b.expectHeld()
	defer b.conclude()
	first, last := b.postponed(todo)
	b.run(ctx, first)
	for _, i := range last {
		b.tryAlone(ctx, i)
	}
	b.settleDoubts(ctx)
	return b.errs
}

// run handles items[todo...] in one transaction. After a failure it goes on without the culprit, or in halves where that is
// unknown. While transactions fail in a row, each takes half as many messages as the one before: each message that fails would
// otherwise cost a claim of all that follow it.
func (b *batch[TTx]) run(ctx context.Context, todo []int) {
	most, failed := len(todo), false
	for len(todo) > 0 {
		n := min(most, len(todo))
		next, ok := b.try(ctx, todo[:n])
		switch {
		case ok:
			most *= 2
		case failed:
			most = max(n/2, 1)
		}
		failed = !ok
		todo = todo[next:]
	}
}

// try handles items[part...] in one transaction. next is how many of part are decided, or left for another delivery.
func (b *batch[TTx]) try(ctx context.Context, part []int) (next int, ok bool) {
	todo := b.ready(ctx, part)
	if len(todo) == 0 {
		return len(part), true
	}
	epoch := b.pause.now()
	a := b.attempt(ctx, todo)
	switch {
	case a.err == nil:
		b.lone = 0
		return len(part), true
	case ctx.Err() != nil: // a shutdown counts against nobody, whatever it looks like
		b.retry(ctx, todo, &RetryError{Err: a.err, Uncounted: true})
	case !a.handling && b.cfg.Store.Retryable(a.err) && !errors.Is(a.err, dedup.ErrClocks): // nothing that depends on the messages has happened yet
		b.down = true
		b.fault(ctx, todo, epoch, a.err)
	case len(todo) == 1:
		b.judge(ctx, todo[0], epoch, a.err)
	case !a.handling && len(a.culprits) == 0 && errors.Is(a.err, dedup.ErrInFlight) && b.leaveHeld(ctx, todo, epoch, a.err):
	case len(a.culprits) == 1: // it is tried alone: what another one did to the transaction is not its fault
		at := a.culprits[0]
		b.run(ctx, todo[:at])
		b.run(ctx, todo[at:at+1])
		return slices.Index(part, todo[at]) + 1, false
	case len(a.culprits) > 0:
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
	return len(part), false
}

// ready leaves out what is done, and holds back what must wait.
func (b *batch[TTx]) ready(ctx context.Context, todo []int) (ready []int) {
	for _, i := range todo {
		it := &b.items[i]
		switch before, found := b.held[it.msg.Key]; {
		case it.done, b.errs[i] != nil:
		case found && before.by < i:
			err := fmt.Errorf("held back behind an earlier message of key %q: %s", it.msg.Key, before.retry.Err.Error())
			b.retry(ctx, []int{i}, &RetryError{Err: err, After: before.retry.After, Uncounted: true})
		case b.down:
			b.retry(ctx, []int{i}, b.last)
		case !b.inDoubt(it) && !b.admitted(ctx, i):
		default:
			ready = append(ready, i)
		}
	}
	return ready
}

// judge decides what becomes of a message that failed by itself.
func (b *batch[TTx]) judge(ctx context.Context, i, epoch int, err error) {
	it := &b.items[i]
	attempt := max(it.msg.Attempt, 1)
	late := errors.Is(err, ErrHandlerTimeout) // whatever else the end of its ctx has made of it
	asked, asks := errors.AsType[*RetryError](err)
	refused, isRefused := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, dedup.ErrInFlight) && !late:
		times := b.inFlight.again(ctx, b.cfg.Logger, &b.items[i], err)
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: b.cfg.wait(max(b.deferrals+1, times)), Uncounted: true})
	case b.cfg.Store.Retryable(err) && !late && !b.counts(ctx, it, err): // also if the handler calls it permanent: it cannot know
		b.lone++
		b.down = b.lone >= 2 && !(it.culprit && b.works) // known culprits do not stop each other while others are committed
		b.fault(ctx, []int{i}, epoch, err)
	case asks && asked.Uncounted && !late && !isRefused && !IsPermanent(err) && !neverCured(err):
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: max(asked.After, 0), Uncounted: true})
	default:
		it.failed = true
		switch {
		case isRefused:
			b.giveUp(ctx, i, refused.reason, err)
		case IsPermanent(err), neverCured(err), b.enough(it, attempt):
			b.giveUp(ctx, i, ReasonPoison, err)
		case asks:
			b.retry(ctx, []int{i}, &RetryError{Err: err, After: max(asked.After, 0)})
		default:
			b.retry(ctx, []int{i}, &RetryError{Err: err, After: b.cfg.wait(attempt)})
		}
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
	retry := &RetryError{Err: err, Uncounted: true}
	b.last = retry
	if ctx.Err() == nil {
		e := Event{Consumer: b.cfg.Name, Err: err}
		deferrals, about := b.deferrals, []any(nil)
		if len(todo) == 1 {
			it := &b.items[todo[0]]
			e.Message, about = it.msg, it.attrs()[2:]
			deferrals = max(deferrals, b.history.faults(it.derived)-1)
		}
		retry.After = b.pause.fault(ctx, err, epoch, deferrals, about...)
		e.Took = retry.After
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
		b.cfg.Trace.emit(ctx, hook, Event{Consumer: b.cfg.Name, Message: b.items[i].msg, Err: retry.Err, Took: retry.After, Uncounted: retry.Uncounted})
		b.fail(i, retry)
	}
}

// fail records what Process will return for items[i], which is not nil, and holds back what follows.
func (b *batch[TTx]) fail(i int, err error) {
	b.errs[i] = err
	key := b.items[i].msg.Key
	if before, found := b.held[key]; key == "" || found && before.by < i {
		return
	}
	retry, ok := errors.AsType[*RetryError](err)
	if !ok {
		retry = &RetryError{Err: err}
	}
	b.held[key] = heldBack{retry: retry, by: i}
}

// heldBack is a failure that the later messages of its ordering key must not overtake.
type heldBack struct {
	retry *RetryError
	by    int // of items
}
