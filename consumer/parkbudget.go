package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/tokens"
)

// parkBudget limits how fast messages are parked: parking one takes a token. When no token is there, something is wrong
// with more than one message, and the consumer pauses until a handler has succeeded and half of the burst is back.
// During a pause handlers run only as probes, so that a flood of failing messages costs one handler run for each token
// and no more. The number of probes that may run at the same time starts at one, doubles with each probe that is
// committed, and falls back to one with each that fails. When it has reached probesMost, all handlers run again, until
// a message finds no token.
type parkBudget struct {
	report reporter
	pauses atomic.Bool // spent, read without mu

	mu     sync.Mutex
	bucket tokens.Bucket
	spent  bool      // a pause is on
	err    error     // of the message that began it
	most   int       // probes that may run at the same time
	probes int       // probes that run now
	next   time.Time // no probe begins before
	turn   time.Time // when the last message that was turned away comes back
}

// probesMost is about how many successful messages in a row prove that handlers work.
const probesMost = 64

// turnsWithin limits the delay of messages that are turned away. They come back one after the other within this time.
const turnsWithin = time.Minute

func newParkBudget(limit ParkLimit, report reporter) *parkBudget {
	return &parkBudget{report: report, bucket: tokens.NewBucket(tokens.Limit(limit))}
}

// refill adds the tokens that are due, and reports whether that ends a pause. The caller holds mu.
func (b *parkBudget) refill(now time.Time) (ends bool) {
	b.bucket.Refill(now)
	if ends = b.spent && b.bucket.HalfFull() && b.most > 1; ends {
		b.spent = false
		b.pauses.Store(false)
	}
	return ends
}

// take spends one token to park a message that failed with cause, or says when to try again.
func (b *parkBudget) take(ctx context.Context, err error, about ...any) (wait time.Duration) {
	if b.bucket.Unlimited() {
		return 0
	}
	b.mu.Lock()
	now := time.Now()
	ends := b.refill(now)
	if !b.bucket.Take() {
		if !b.spent {
			b.turn = time.Time{}
		}
		b.spent, b.err, b.most = true, err, 1
		b.pauses.Store(true)
		wait = b.away(now)
	}
	report := b.changed(ctx, ends, wait > 0, err, about...)
	b.mu.Unlock()
	report()
	return wait
}

// changed records for the report that a pause has ended, or that a message was turned away. The caller holds mu, and
// calls tell without it.
func (b *parkBudget) changed(ctx context.Context, ended, away bool, err error, about ...any) (tell func()) {
	switch {
	case ended:
		return b.report.Working(ctx)
	case away:
		return b.report.Failing(ctx, true, err, about...)
	}
	return func() {}
}

// away returns the delay of a message that is turned away. The messages of a flood come back one after the other. The
// caller holds mu.
func (b *parkBudget) away(now time.Time) time.Duration {
	first := now.Add(max(b.bucket.Next(), b.next.Sub(now), min(b.bucket.Interval(), time.Second)))
	b.turn = b.turn.Add(b.bucket.Interval())
	if b.turn.Before(first) || b.turn.After(first.Add(turnsWithin)) {
		b.turn = first
	}
	return b.turn.Sub(now)
}

// admit returns no error if a handler may run. probe says that it runs as a probe: then call settle afterwards.
// Otherwise err says why it must not run, and wait how long to wait before the next call.
func (b *parkBudget) admit(ctx context.Context) (probe bool, wait time.Duration, err error) {
	if !b.pauses.Load() {
		return false, 0, nil
	}
	b.mu.Lock()
	now := time.Now()
	ends, first := b.refill(now), b.err
	switch {
	case !b.spent || b.most >= probesMost:
	case b.probes < b.most && b.bucket.Has(1) && !now.Before(b.next):
		b.probes++
		probe = true
	default:
		wait = b.away(now)
	}
	report := b.changed(ctx, ends, wait > 0, first)
	b.mu.Unlock()
	report()
	if wait == 0 {
		return probe, 0, nil
	}
	return false, wait, fmt.Errorf("%w: handlers run one at a time until one succeeds; the message that spent it failed with: %v", ErrParkLimit, first) //nolint:errorlint // it is another message's
}

// probed is the result of a probe.
type probed uint8

const (
	showedNothing probed = iota // its handler did not run, or the database is at fault
	succeeded
	failed
)

// settle ends a probe.
func (b *parkBudget) settle(p probed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes--
	switch p {
	case succeeded:
		b.most = min(2*b.most, probesMost)
	case failed:
		b.most, b.next = 1, time.Now().Add(b.bucket.Interval())
	case showedNothing:
	}
}

// giveBack returns a token that was taken and not used.
func (b *parkBudget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket.GiveBack(1)
}
