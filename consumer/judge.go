package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/observe"
)

const (
	// quickClaim is how many times longer than the claim a transaction took whose time limit says something about its
	// handler: a database that is slow for everybody is slow for the claim, too.
	quickClaim = 3

	// mostWaits is how many messages of a batch may wait for locks until their waits end. The others of the batch wait
	// for a short time only.
	mostWaits = 2
)

// now are the circumstances of an item that fails.
func (b *batch[TTx]) now(it *item) decide.Now {
	return decide.Now{
		Attempt: it.msg.Attempt, MaxAttempts: b.c.cfg.MaxAttempts, GiveUp: it.msg.givenUpBy(time.Now()),
		Deferrals: b.options.deferrals, ShortWaits: it.noWaits, Quick: it.quick,
	}
}

// judge decides what happens to items[i], which failed with f and err in a transaction of its own, and does it.
func (b *batch[TTx]) judge(ctx context.Context, i, epoch int, f decide.Failure, err error) {
	it := &b.items[i]
	v := b.c.memory.judge(it.hash, f, b.now(it))
	it.warn(ctx, b.c.cfg.Logger, v, err)
	if v.Fault {
		b.database = b.database.After(f, it.noWaits, it.culprit)
	}
	if v.Do == decide.Park || v.Do == decide.Retry {
		it.failed = !f.Refused || !decide.BeforeHandlers(v.Cause, it.refused != nil)
	}
	if v.Counted {
		it.counted, it.countedErr = &v, err
	}
	b.settle(ctx, i, epoch, it.stage(), v, err)
}

// warn logs what a person should know about an item.
func (it *item) warn(ctx context.Context, logger *slog.Logger, v decide.Verdict, err error) {
	texts := map[decide.Warning]string{
		decide.WarnInFlight:  "message is deferred again and again: another transaction holds its key; is a process frozen?",
		decide.WarnContended: "message is deferred again and again: other transactions hold or change the rows that its handler uses, or the handler waits for itself because it uses another connection than its transaction",
		decide.WarnBlamed:    "message meets database errors again and again, and other messages or its own claim show that the database works: from now on they count as attempts",
	}
	if text, ok := texts[v.Warn]; ok {
		logger.WarnContext(ctx, text, append(it.attrs(), "times", v.Times, "error", err)...)
	}
}

// settle does what v says about items[i], which failed with err at stage of a transaction that began in epoch.
func (b *batch[TTx]) settle(ctx context.Context, i, epoch int, at stage, v decide.Verdict, err error) {
	for v.Do == decide.Park {
		epoch, at = b.c.gate.admit(ctx, wish{}).epoch, ofLetters
		v, err = b.park(ctx, i, v, err)
	}
	it := &b.items[i]
	retry := &RetryError{Err: err, After: v.After, Held: v.Do != decide.Retry}
	if v.Backoff > 0 && v.Do != decide.Pause {
		retry.After = b.c.cfg.backoff(v.Backoff)
	}
	switch v.Do {
	case decide.Done:
	case decide.Pause:
		b.fault(ctx, []int{i}, epoch, at, err)
	case decide.Retry:
		b.c.retries.failed(ctx, it, err)
		b.retry([]int{i}, retry, v.Cause)
	default:
		if v.Fault {
			b.lastFault = retry
		}
		b.retry([]int{i}, retry, v.Cause)
	}
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
		fault := event{what: faulted, at: at, epoch: epoch, err: err, failures: b.options.deferrals + 1}
		if len(todo) == 1 {
			it := &b.items[todo[0]]
			fault.about = it.attrs()[2:]
			fault.failures = max(fault.failures, b.c.memory.past(it.hash).Faults)
		}
		retry.After = b.c.gate.report(ctx, fault)
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
		b.pass.outcome(i, MessageOutcome{
			Outcome: outcome, Cause: cause, Key: b.items[i].rec.Key, Err: retry.Err,
			After: retry.After,
		})
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
