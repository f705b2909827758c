package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// judge decides what happens to items[i], which failed with err in a transaction of its own.
func (b *batch[TTx]) judge(ctx context.Context, i, epoch int, err error) {
	it := &b.items[i]
	attempt := max(it.msg.Attempt, 1)
	late := errors.Is(err, ErrHandlerTimeout) // this counts, whatever other errors the end of ctx has caused
	asked, asks := errors.AsType[*RetryError](err)
	refused, isRefused := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, dedup.ErrInFlight) && !late:
		times := b.c.history.foundInFlight(ctx, b.c.cfg.Logger, it, err)
		b.retry([]int{i}, &RetryError{Err: err, After: b.c.cfg.backoff(max(b.options.deferrals+1, times)), Held: true}, observe.CauseInFlight)
	case b.c.cfg.Store.Retryable(err) && !late && b.contended(ctx, i, epoch, err):
	case b.c.cfg.Store.Retryable(err) && !late && !b.faultCounts(ctx, it, err): // even if the handler made it Permanent
		b.soloFault(it, err)
		b.fault(ctx, []int{i}, epoch, it.stage(), err)
	case asks && asked.Held && !late && !isRefused && !IsPermanent(err) && !unretryable(err):
		b.retry([]int{i}, &RetryError{Err: err, After: max(asked.After, 0), Held: true}, b.c.cause(err))
	default:
		it.failed = !isRefused || !beforeHandlers(it, refused.cause)
		if isRefused {
			b.parkOrReject(ctx, i, refused.cause, err)
			return
		}
		it.counted, it.spent = err, IsPermanent(err) || unretryable(err) || b.attemptsSpent(it, attempt)
		b.parkOrRetry(ctx, i)
	}
}

// parkOrRetry does what follows from the counted failure of items[i]: it is parked if it has no attempts left.
func (b *batch[TTx]) parkOrRetry(ctx context.Context, i int) {
	it := &b.items[i]
	if it.spent {
		b.parkOrReject(ctx, i, givenUpFor(it.counted), it.counted)
		return
	}
	retry := &RetryError{Err: it.counted}
	if asked, asks := errors.AsType[*RetryError](it.counted); asks {
		retry.After = max(asked.After, 0)
	} else {
		retry.After = b.c.cfg.backoff(max(it.msg.Attempt, 1))
	}
	b.c.retries.failed(ctx, it, retry.Err)
	b.retry([]int{i}, retry, b.c.cause(it.counted))
}

// givenUpFor returns the cause for parking a message whose handler failed with err.
func givenUpFor(err error) observe.Cause {
	switch _, panicked := errors.AsType[*PanicError](err); {
	case panicked:
		return observe.CausePanic
	case IsPermanent(err), unretryable(err):
		return observe.CausePermanent
	}
	return observe.CauseExhausted
}

// unretryable reports an error of the store that another attempt would repeat or make worse: after ErrTxEnded, each attempt
// may leave effects behind.
func unretryable(err error) bool {
	return slices.ContainsFunc([]error{dedup.ErrTxEnded, dedup.ErrKeyCollision, dedup.ErrBadKey, dedup.ErrNoKey, dedup.ErrFuture},
		func(e error) bool { return errors.Is(err, e) })
}

// attemptsSpent reports whether a message that failed once more is given up. The broker's count of attempts may include
// crashes, stops and lost answers, so this process must also have seen two failures. The count alone decides when it is too
// high for that, as when each attempt reaches another process. From Message.GiveUpAt on, the first failure decides.
func (b *batch[TTx]) attemptsSpent(it *item, attempt int) bool {
	seen := b.c.history.failed(it.hash)
	most := b.c.cfg.MaxAttempts
	return attempt >= most && seen >= min(2, most) || attempt >= max(100, 10*most) || it.msg.givenUpBy(time.Now())
}

// givenUpBy reports whether the source may have stopped delivering the message at the time now.
func (m *Message) givenUpBy(now time.Time) bool {
	return !m.GiveUpAt.IsZero() && !now.Before(m.GiveUpAt)
}

// fault defers items[todo...] because the database failed at stage of a transaction.
func (b *batch[TTx]) fault(ctx context.Context, todo []int, epoch int, at stage, err error) {
	retry := &RetryError{Err: err, Held: true}
	b.lastFault = retry
	if ctx.Err() == nil {
		deferrals, about := b.options.deferrals, []any(nil)
		if len(todo) == 1 {
			it := &b.items[todo[0]]
			about = it.attrs()[2:]
			deferrals = max(deferrals, b.c.history.faults(it.hash)-1)
		}
		retry.After = b.c.pause.fault(ctx, err, at, epoch, deferrals, about...)
	}
	b.retry(todo, retry, observe.CauseDatabase)
}

// retry defers items[todo...] because of cause.
func (b *batch[TTx]) retry(todo []int, retry *RetryError, cause observe.Cause) {
	outcome := observe.Retried
	if retry.Held {
		outcome = observe.Held
	}
	for _, i := range todo {
		b.pass.outcome(i, MessageOutcome{Outcome: outcome, Cause: cause, Key: b.items[i].rec.Key, Err: retry.Err, After: retry.After})
		b.fail(i, retry, cause)
	}
}

// fail answers items[i] with err and blocks the later messages of its ordering key.
func (b *batch[TTx]) fail(i int, err error, cause observe.Cause) {
	b.errs[i] = err
	key := b.items[i].msg.OrderingKey
	if before, found := b.blocked[key]; key == "" || found && before.by < i {
		return
	}
	retry, ok := errors.AsType[*RetryError](err)
	if !ok {
		retry = &RetryError{Err: err}
	}
	b.blocked[key] = blockedKey{retry: retry, cause: cause, by: i}
}

// blockedKey is a failure that later messages of the same ordering key must not overtake.
type blockedKey struct {
	retry *RetryError
	cause observe.Cause
	by    int // the failed message's place in items
}
