package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// parkBudget is a token bucket: parking a message takes a token. When one is wanted and none is there, something is wrong
// with more than a message, and the consumer pauses until a handler has succeeded and half of the burst is back. While it pauses handlers run only as
// probes, so that a flood of messages that fail costs a handler run for each token and no more. The number of probes that
// may run side by side starts at one, doubles with each probe that is committed, and falls back to one with each that
// fails; behind probesMost nothing waits any more, until a token is wanted again.
type parkBudget struct {
	limit  ParkLimit
	notice *notice
	pauses atomic.Bool // spent, read without mu

	mu     sync.Mutex
	tokens float64
	at     time.Time // when tokens were counted
	spent  bool      // a pause is on
	cause  error     // of the message that began it
	most   int       // probes that may run side by side
	probes int       // that do
	next   time.Time // no probe begins before
	turn   time.Time // when the last message that was turned away comes back
}

// probesMost is how many messages in a row or so prove that handlers work.
const probesMost = 64

// turnsWithin is how far ahead messages that are turned away are told to come back, one after the other.
const turnsWithin = time.Minute

func newParkBudget(limit ParkLimit, n *notice) *parkBudget {
	return &parkBudget{limit: limit, notice: n, tokens: float64(limit.Burst), at: time.Now()}
}

// each is how long it takes until one more token is there.
func (b *parkBudget) each() time.Duration { return time.Minute / time.Duration(b.limit.PerMinute) }

// count adds the tokens that have come since, and reports whether that ends a pause. The caller holds mu.
func (b *parkBudget) count(now time.Time) (ends bool) {
	b.tokens = min(float64(b.limit.Burst), b.tokens+now.Sub(b.at).Minutes()*float64(b.limit.PerMinute))
	b.at = now
	if ends = b.spent && b.tokens >= max(1, float64(b.limit.Burst)/2) && b.most > 1; ends {
		b.spent = false
		b.pauses.Store(false)
	}
	return ends
}

// take spends one token to park a message that failed with cause, or says when to try again.
func (b *parkBudget) take(ctx context.Context, cause error, about ...any) (wait time.Duration) {
	if b.limit.Unlimited {
		return 0
	}
	b.mu.Lock()
	now := time.Now()
	ends := b.count(now)
	if b.tokens >= 1 {
		b.tokens--
	} else {
		if !b.spent {
			b.turn = time.Time{}
		}
		b.spent, b.cause, b.most = true, cause, 1
		b.pauses.Store(true)
		wait = b.away(now)
	}
	b.mu.Unlock()
	if ends {
		b.notice.resumed(ctx)
	}
	if wait > 0 {
		b.notice.paused(ctx, true, cause, about...)
	}
	return wait
}

// away says when a message that is turned away comes back: those of a flood one after the other. The caller holds mu.
func (b *parkBudget) away(now time.Time) time.Duration {
	first := now.Add(max(time.Duration((1-b.tokens)*float64(b.each())), b.next.Sub(now), min(b.each(), time.Second)))
	b.turn = b.turn.Add(b.each())
	if b.turn.Before(first) || b.turn.After(first.Add(turnsWithin)) {
		b.turn = first
	}
	return b.turn.Sub(now)
}

// admit reports whether a handler may run, and if so whether as a probe; settle must follow a probe. Otherwise err says
// why not, and wait when to ask again.
func (b *parkBudget) admit(ctx context.Context) (probe bool, wait time.Duration, err error) {
	if !b.pauses.Load() {
		return false, 0, nil
	}
	b.mu.Lock()
	now := time.Now()
	ends, cause := b.count(now), b.cause
	switch {
	case !b.spent || b.most >= probesMost:
	case b.probes < b.most && b.tokens >= 1 && !now.Before(b.next):
		b.probes++
		probe = true
	default:
		wait = b.away(now)
	}
	b.mu.Unlock()
	if ends {
		b.notice.resumed(ctx)
	}
	if wait == 0 {
		return probe, 0, nil
	}
	b.notice.paused(ctx, true, cause)
	return false, wait, fmt.Errorf("%w: handlers run one at a time until one succeeds; the message that spent it failed with: %v", ErrParkLimit, cause) //nolint:errorlint // it is another message's
}

// probed is what a probe has shown.
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
		b.most, b.next = 1, time.Now().Add(b.each())
	case showedNothing:
	}
}

// giveBack returns a token that was taken for nothing.
func (b *parkBudget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens++
}
