package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// batch is one pass over messages, for Process or ProcessBatch. Only one goroutine uses it.
type batch[TTx any] struct {
	c       *Consumer[TTx]
	pass    pass
	options passOptions
	items   []item
	errs    []error // errs[i] answers items[i]

	arrived    time.Time             // when the pass began
	blocked    map[string]blockedKey // by ordering key
	claimWait  claimWait
	before     int         // how many culprits come after the messages that are tried, see named
	waits      int         // transactions with a single message that ended because it had waited for a lock, or may have
	soloFaults int         // transactions with a single message that the database failed, in a row
	worked     bool        // a handler's work was committed in this pass
	down       bool        // the database is at fault: nothing more is tried
	plain      bool        // no handlers run side by side in the rest of this pass, because that has failed
	lastFault  *RetryError // the answer to the latest fault of the database
}

// passOptions are the limits that differ between Process and ProcessBatch.
type passOptions struct {
	deferrals int           // how many times in a row the messages were deferred without counting an attempt
	keyWait   time.Duration // how long to wait, in total, for other calls that process the keys; 0: until ctx ends
}

// process handles msgs once. It sleeps only while it cannot park messages in doubt.
func (c *Consumer[TTx]) process(ctx context.Context, msgs []*Message, options passOptions) []error {
	b := &batch[TTx]{
		c: c, pass: c.newPass(ctx, msgs, DeadLetterID{}), options: options,
		items: c.prepareAll(msgs), errs: make([]error, len(msgs)),
		blocked: map[string]blockedKey{}, arrived: time.Now(),
	}
	ctx = b.pass.start(ctx)
	defer b.pass.done(ctx)
	todo := make([]int, len(msgs))
	for i := range todo {
		todo[i] = i
	}
	epoch := c.pause.epoch()
	if err := c.register(ctx); errors.Is(err, ErrClosed) {
		b.retry(todo, &RetryError{Err: err, After: c.cfg.backoff(1), Held: true}, observe.CauseCancelled)
		return b.errs
	} else if err != nil {
		b.fault(ctx, todo, epoch, ofClaims, err)
		return b.errs
	}
	defer b.lockKeys(ctx)()
	for i := range b.items { // after the keys are locked: another call may just have left a doubt
		if it := &b.items[i]; it.refused == nil {
			it.refused = c.refusedByDoubt(it)
		}
	}
	b.expectHeldKeys()
	defer b.conclude()
	together, alone := b.separate(todo)
	b.run(ctx, together)
	for _, i := range alone {
		b.tryAlone(ctx, i)
	}
	b.parkDoubts(ctx)
	return b.errs
}

// run handles items[todo...] in as few transactions as possible. While transactions fail in a row, each takes half as many
// messages as the one before: otherwise each failing message would cost a claim of all messages that follow it. The limit of
// the Consumer also holds, see batchLimit.
func (b *batch[TTx]) run(ctx context.Context, todo []int) {
	most, failed := b.c.cfg.most(len(todo)), false
	for len(todo) > 0 {
		n := b.c.limit.of(min(most, len(todo)))
		next, ok := b.try(ctx, todo[:n])
		switch {
		case ok:
			most = b.c.cfg.most(2 * min(most, len(todo)))
		case failed:
			most = max(n/2, 1)
		}
		failed = !ok
		todo = todo[next:]
	}
}

// try handles items[part...] in one transaction. If it fails, try goes on without the failing messages, or in halves if it
// is unknown which messages fail. next is how many of part are decided or left for another delivery.
func (b *batch[TTx]) try(ctx context.Context, part []int) (next int, ok bool) {
	todo := b.ready(ctx, part)
	if len(todo) == 0 {
		return len(part), true
	}
	epoch := b.c.pause.epoch()
	began := time.Now()
	a := b.attempt(ctx, todo)
	switch {
	case a.interleaved:
		b.interleaved(ctx, a.err, time.Since(began))
	case len(todo) > 1 && a.claimed && ctx.Err() == nil && b.collided(a.err):
		b.c.limit.failed(len(todo), time.Since(began))
	}
	switch {
	case a.err == nil:
		if a.ran > 0 { // duplicates prove nothing about handlers
			b.soloFaults = 0
		}
		if 2*a.ran >= len(todo) {
			b.c.limit.succeeded(len(todo))
		}
		return len(part), true
	case ctx.Err() != nil: // a shutdown counts against no message, whatever the error looks like
		b.retry(todo, &RetryError{Err: a.err, Held: true}, observe.CauseCancelled)
	case !a.claimed && b.c.cfg.Store.Retryable(a.err) && !errors.Is(a.err, dedup.ErrClocks): // the messages had no part in it yet
		b.down = true
		b.fault(ctx, todo, epoch, ofClaims, a.err)
	case len(todo) == 1:
		b.judge(ctx, todo[0], epoch, a.err)
	case !a.claimed && len(a.culprits) == 0 && errors.Is(a.err, dedup.ErrInFlight) && b.deferHeldKeys(ctx, todo, epoch, a.err):
	case len(a.culprits) == 1: // it is tried alone, in case another message broke the transaction
		at := a.culprits[0]
		b.before++
		b.run(ctx, todo[:at])
		b.before--
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

// collided reports whether the database ended a transaction with err, such as a deadlock, which no single message causes.
func (b *batch[TTx]) collided(err error) bool {
	if err == nil || !b.c.cfg.Store.Retryable(err) {
		return false
	}
	c, ok := b.c.cfg.Store.(driver.FaultClassifier)
	return !ok || !c.Ambiguous(err)
}

// ready returns the items of todo that may be tried now. It defers those that must wait.
func (b *batch[TTx]) ready(ctx context.Context, todo []int) (ready []int) {
	for _, i := range todo {
		it := &b.items[i]
		switch before, found := b.blocked[it.msg.OrderingKey]; {
		case it.done, b.errs[i] != nil:
		case found && before.by < i:
			err := fmt.Errorf("held back behind an earlier message of key %q: %s", it.msg.OrderingKey, before.retry.Err.Error())
			b.retry([]int{i}, &RetryError{Err: err, After: before.retry.After, Held: true}, before.cause)
		case b.down:
			b.retry([]int{i}, b.lastFault, observe.CauseDatabase)
		case !b.c.inDoubt(it) && it.refused == nil && !b.admitted(ctx, i): // no other runs a handler
		default:
			ready = append(ready, i)
		}
	}
	return ready
}

// admitted reports whether the handler of items[i] may run now. While the parking limit is spent, items[i] is deferred
// unless it is the next probe.
func (b *batch[TTx]) admitted(ctx context.Context, i int) bool {
	it := &b.items[i]
	if it.probe {
		return true
	}
	probe, wait, err := b.c.budget.admit(ctx)
	it.probe = probe
	if err != nil {
		b.retry([]int{i}, &RetryError{Err: err, After: wait, Held: true}, observe.CauseBudget)
	}
	return err == nil
}

// conclude ends the probes of the pass and forgets what is known of messages that are done.
func (b *batch[TTx]) conclude() {
	for i := range b.items {
		it := &b.items[i]
		if it.done && !it.committed { // parked, or committed by another call
			b.c.history.forget(it.hash, false)
		}
		switch {
		case !it.probe:
		case it.failed:
			b.c.budget.settle(failed)
		case it.ran:
			b.c.budget.settle(succeeded)
		default:
			b.c.budget.settle(showedNothing)
		}
	}
}
