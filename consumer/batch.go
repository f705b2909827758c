package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
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

	arrived   time.Time             // when the pass began
	blocked   map[string]blockedKey // by ordering key
	claimWait claimWait
	database  decide.Streak
	plain     bool // no handlers are interleaved in the rest of this pass, because that has failed
	turn      trialTurn
	lastFault *RetryError // the answer to the latest fault of the database
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
		items: c.cfg.prepareAll(msgs), errs: make([]error, len(msgs)),
		blocked: map[string]blockedKey{}, arrived: time.Now(),
	}
	ctx = b.pass.start(ctx)
	defer b.pass.done(ctx)
	todo := make([]int, len(msgs))
	for i := range todo {
		todo[i] = i
	}
	epoch := c.gate.admit(ctx, wish{}).epoch
	if err := c.registration.register(ctx); errors.Is(err, ErrClosed) {
		b.retry(todo, &RetryError{Err: err, After: c.cfg.backoff(1), Held: true}, observe.CauseCancelled)
		return b.errs
	} else if err != nil {
		b.fault(ctx, todo, epoch, ofClaims, err)
		return b.errs
	}
	defer b.lockKeys(ctx)()
	for i := range b.items { // after the keys are locked: another call may just have left a doubt
		if it := &b.items[i]; it.refused == nil {
			it.refused = c.memory.refuses(it)
		}
	}
	b.expectHeldKeys()
	defer b.conclude(ctx)
	defer b.endTrials() // after a panic
	together, alone := b.separate(todo)
	b.run(ctx, together)
	for _, i := range alone {
		b.tryAlone(ctx, i)
	}
	b.endTrials()
	b.parkDoubts(ctx)
	return b.errs
}

// run handles items[todo...] in as few transactions as possible, and answers them. It is the only place that acts on
// decide.OfTransaction.
func (b *batch[TTx]) run(ctx context.Context, todo []int) {
	work := decide.NewWork(todo, b.c.cfg.MaxPerTransaction)
	for {
		entry := b.c.gate.admit(ctx, wish{what: aTransaction})
		part := work.Next(entry.most)
		if len(part) == 0 {
			return
		}
		ready := b.ready(ctx, part)
		if len(ready) == 0 {
			work.Committed()
			continue
		}
		a := b.attempt(ctx, ready, work.Before(), entry.plain)
		f := a.conclude(ctx)
		if a.err == nil {
			work.Committed()
			continue
		}
		switch decide.OfTransaction(f, a.tried()) {
		case decide.HoldAll:
			b.retry(ready, &RetryError{Err: a.err, Held: true}, observe.CauseCancelled)
			work.Deferred()
		case decide.PauseAll:
			b.database.Down = true
			b.fault(ctx, ready, entry.epoch, ofClaims, a.err)
			work.Deferred()
		case decide.Judge:
			b.judge(ctx, ready[0], entry.epoch, f, a.err)
			work.Deferred()
		case decide.ProbeKeys:
			if b.deferHeldKeys(ctx, ready, entry.epoch, f, a.err) {
				work.Again(ready) // without those that were just deferred
			} else {
				work.Halve(ready)
			}
		case decide.Around:
			work.Around(ready, a.culprits)
		case decide.Halves:
			work.Halve(ready)
		}
	}
}

// ready returns the items of todo that may be tried now. It defers those that must wait.
func (b *batch[TTx]) ready(ctx context.Context, todo []int) (ready []int) {
	for _, i := range todo {
		it := &b.items[i]
		switch before, found := b.blocked[it.msg.OrderingKey]; {
		case it.done, b.errs[i] != nil:
		case found && before.by < i:
			err := fmt.Errorf("held back behind an earlier message of key %q: %s", it.msg.OrderingKey,
				before.retry.Err.Error())
			b.retry([]int{i}, &RetryError{Err: err, After: before.retry.After, Held: true}, before.cause)
		case b.database.Down:
			b.retry([]int{i}, b.lastFault, observe.CauseDatabase)
		case !b.c.memory.inDoubt(it) && it.refused == nil && !b.admitted(ctx, i): // no other runs a handler
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
	e := b.c.gate.admit(ctx, wish{what: aHandler})
	it.probe = e.probe
	if e.err != nil {
		b.retry([]int{i}, &RetryError{Err: e.err, After: e.wait, Held: true}, observe.CauseBudget)
	}
	return e.err == nil
}

// alone returns the ctx of the transaction with items[todo...]. A message that has exceeded a limit of time in a
// transaction of its own runs with short waits for locks the next time: if it exceeds the limit there, too, it is not
// because other transactions held it up.
func (b *batch[TTx]) alone(ctx context.Context, todo []int) context.Context {
	noWaits := b.database.Waits >= mostWaits
	if len(todo) == 1 {
		it := &b.items[todo[0]]
		noWaits = noWaits || it.culprit && b.c.memory.past(it.hash).Timed
		it.noWaits = noWaits
	}
	if noWaits {
		return driver.WithoutLockWaits(ctx)
	}
	return ctx
}

// conclude ends the probes of the pass and forgets what is known of messages that are done.
func (b *batch[TTx]) conclude(ctx context.Context) {
	for i := range b.items {
		it := &b.items[i]
		if it.done && !it.committed { // parked, or committed by another call
			b.c.memory.forgetPast(it.hash)
		}
		if !it.probe {
			continue
		}
		ended := event{what: probeEnded, probe: showedNothing}
		switch {
		case it.failed:
			ended.probe = failed
		case it.ran:
			ended.probe = succeeded
		}
		b.c.gate.report(ctx, ended)
	}
}
