package consumer

import (
	"context"
	"errors"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/observe"
)

const (
	// quickClaim is how many times longer than the claim a transaction took whose time limit says something about its handler: a database
	// that is slow for everybody is slow for the claim, too.
	quickClaim = 3

	// mostWaits is how many messages of a batch may wait for locks until their waits end. The others of the batch wait for a short time only.
	mostWaits = 2

	// aloneMost is how many messages may meet database errors while none is committed, for one of them to be blamed. More of them are a
	// sign that the database is at fault.
	aloneMost = 3

	// turnsAfter is how many times in a row a message may lose to other transactions before it waits for its turn: one Consumer runs the
	// handlers of such messages one after the other, because side by side they would go on losing to each other.
	turnsAfter = 3

	// contendedToLog is how many times in a row a message loses to other transactions before that is logged.
	contendedToLog = 20
)

// verdict returns what follows from err, an error of the Store that is Retryable.
func (c *Consumer[TTx]) verdict(err error) (driver.FaultClass, faults.Verdict) {
	class := driver.FaultConnection
	if namer, ok := c.cfg.Store.(driver.FaultNamer); ok {
		class = namer.FaultClass(err)
		if class == driver.FaultContention || class == driver.FaultTimeLimit || class == driver.FaultIdleLimit {
			return class, faults.Any.After(class, faults.Handler)
		}
	}
	if classifier, ok := c.cfg.Store.(driver.FaultClassifier); ok && classifier.Ambiguous(err) {
		return class, faults.Any.After(driver.FaultDeployment, faults.Handler)
	}
	return class, faults.Any.After(driver.FaultConnection, faults.Handler)
}

// alone returns the ctx of the transaction with items[todo...]. A message that has exceeded a limit of time in a transaction of its own
// runs with short waits for locks the next time: if it exceeds the limit there, too, it is not because other transactions held it up.
func (b *batch[TTx]) alone(ctx context.Context, todo []int) context.Context {
	noWaits := b.waits >= mostWaits
	if len(todo) == 1 {
		it := &b.items[todo[0]]
		noWaits = noWaits || it.culprit && b.c.history.timedOut(it.hash)
		it.noWaits = noWaits
	}
	if noWaits {
		return driver.WithoutLockWaits(ctx)
	}
	return ctx
}

// soloFault counts that the database failed the transaction of it alone with err. Two in a row end the batch: the database is away. A message
// that may have waited for a lock says nothing about the others, which may use other rows: the batch goes on, with short waits for locks.
func (b *batch[TTx]) soloFault(it *item, err error) {
	switch class, _ := b.c.verdict(err); {
	case class == driver.FaultContention, class == driver.FaultTimeLimit && !it.noWaits:
		b.waits++
		return
	}
	b.soloFaults++
	b.down = b.soloFaults >= 2 && !(it.culprit && b.worked) // known culprits do not stop each other while other messages are committed
}

// contended reports whether err of items[i], in a transaction of its own, says that other transactions were in its way. Then it has deferred
// items[i], for longer each time. That never counts: the message is committed as soon as the others leave it the rows. If nothing is
// committed meanwhile, whatever holds the rows is treated as a failure of the database.
func (b *batch[TTx]) contended(ctx context.Context, i, epoch int, err error) bool {
	if class, _ := b.c.verdict(err); class != driver.FaultContention {
		return false
	}
	it := &b.items[i]
	times, others := b.c.history.contend(it.hash)
	if times == contendedToLog {
		b.c.cfg.Logger.WarnContext(ctx, "message is deferred again and again: other transactions hold or change the rows that its handler uses, or the handler waits for itself because it uses another connection than its transaction",
			append(it.attrs(), "times", times, "error", err)...)
	}
	b.soloFault(it, err)
	if times > 1 && !others {
		b.fault(ctx, []int{i}, epoch, it.stage(), err)
		return true
	}
	retry := &RetryError{Err: err, After: b.c.cfg.backoff(max(times, b.options.deferrals+1)), Held: true}
	b.lastFault = retry
	b.retry([]int{i}, retry, observe.CauseDatabase)
	return true
}

// takeTurn makes a message that has lost to other transactions again and again wait until no other such message runs. If ok is false, it
// is deferred. Otherwise end must be called after its handler has run.
func (b *batch[TTx]) takeTurn(i int) (end func(), ok bool) {
	it := &b.items[i]
	times := b.c.history.past(it.hash).contended
	if times < turnsAfter {
		return func() {}, true
	}
	select {
	case b.c.turn <- struct{}{}:
		return func() { <-b.c.turn }, true
	default:
		err := errors.New("it waits for another message whose handler uses rows that other transactions hold or change")
		b.retry([]int{i}, &RetryError{Err: err, After: b.c.cfg.backoff(times), Held: true}, observe.CauseDatabase)
		return nil, false
	}
}

// faultCounts reports whether err, an error of the database that the item met in a transaction of its own, counts as an
// attempt. It does when the item meets such errors again and again while other messages are committed. An exceeded limit of time also
// counts when no other message shows that the database works; see faults.Verdict. A disagreement of clocks never counts.
func (b *batch[TTx]) faultCounts(ctx context.Context, it *item, err error) bool {
	if errors.Is(err, dedup.ErrClocks) {
		return false
	}
	class, v := b.c.verdict(err)
	timed := class == driver.FaultTimeLimit
	met, times, others := b.c.history.fault(it.hash, timed)
	if timed && !it.noWaits && b.c.namesFaults() { // it may have waited for a lock
		return false
	}
	counts := others && met >= v.Beside
	if !counts && v.Alone > 0 && times >= v.Alone {
		counts = class == driver.FaultIdleLimit || it.quick && b.c.history.faulty() <= aloneMost
	}
	if counts && b.c.history.blame(it.hash) {
		b.c.cfg.Logger.WarnContext(ctx, "message meets database errors again and again, and other messages or its own claim show that the database works: from now on they count as attempts",
			append(it.attrs(), "times", times, "error", err)...)
	}
	return counts
}

func (c *Consumer[TTx]) namesFaults() bool {
	_, ok := c.cfg.Store.(driver.FaultNamer)
	return ok
}
