package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

const (
	// suspectAfter is how many deliveries more than MaxAttempts make a message a suspect if this process has not seen
	// it fail: its handler may be what ends the processes.
	suspectAfter = 10

	// trialsMost is how many processes may end while they try a suspect alone.
	trialsMost = 3

	// trialPatience is how long a batch waits for the trials of another one before its suspects are deferred.
	trialPatience = time.Second

	// takeWithin limits how long taking back a letter may last, also after a shutdown began.
	takeWithin = 10 * time.Second
)

// separate splits todo into the messages that share a transaction and those that are tried alone afterwards: messages
// that met database errors alone before, suspects, and all later messages of their ordering keys.
func (b *batch[TTx]) separate(todo []int) (together, alone []int) {
	var keys map[string]bool
	for _, i := range todo {
		it := &b.items[i]
		past := b.c.memory.past(it.hash)
		it.culprit = it.rec.Key.ID != "" && past.Culprit()
		if !it.culprit && !keys[it.msg.OrderingKey] && !b.isSuspect(it) {
			together = append(together, i)
			continue
		}
		alone = append(alone, i)
		if it.msg.OrderingKey != "" {
			if keys == nil {
				keys = map[string]bool{}
			}
			keys[it.msg.OrderingKey] = true
		}
	}
	return together, alone
}

// isSuspect reports whether a message may be ending processes: it was delivered many times, or its source says so, and
// this process knows no outcome of it.
func (b *batch[TTx]) isSuspect(it *item) bool {
	return b.c.letters.lot != nil && it.rec.Key.ID != "" && it.refused == nil &&
		(it.msg.Suspect || it.msg.Attempt > b.c.cfg.MaxAttempts+suspectAfter) && !b.c.memory.past(it.hash).Known()
}

// tryAlone handles items[i] in a transaction of its own. A suspect gets a trial: before its handler runs, a dead letter
// with observe.CauseCrashed is committed, and it is taken back after the handler has returned. A process that ends
// meanwhile leaves the letter, so that later processes can count. After trialsMost of them the message is parked
// without another run. One Consumer tries one suspect at a time, so that a suspect is not counted for what another one
// did. A batch tries its suspects one after the other: a process that is killed again and again would finish no batch if
// batches took turns.
func (b *batch[TTx]) tryAlone(ctx context.Context, i int) {
	it := &b.items[i]
	if it.done || b.database.Down || !b.isSuspect(it) {
		b.runInTurn(ctx, i)
		return
	}
	if len(b.ready(ctx, []int{i})) == 0 { // it waits, such as for an earlier message of its ordering key
		return
	}
	if !b.takeTrials(ctx) {
		err := errors.New("it waits for the trial of another message that may end processes")
		b.retry([]int{i}, &RetryError{Err: err, After: b.c.cfg.backoff(b.options.deferrals + 1), Held: true},
			observe.CauseCrashed)
		return
	}
	epoch := b.c.gate.admit(ctx, wish{}).epoch
	id := letterID(it)
	t := &trial[TTx]{b: b, i: i, it: it}
	times, err := t.begin(ctx, id)
	if err != nil {
		t.failed(ctx, epoch, fmt.Errorf("look for earlier trials: %w", err))
		return
	}
	if times < 0 { // there is no trial
		b.run(ctx, []int{i})
		return
	}
	if times >= trialsMost {
		it.refused = refuse(observe.CauseCrashed, fmt.Errorf("%d processes ended while they tried this message alone, at delivery %d: it is not tried again", times, it.msg.Attempt))
		b.run(ctx, []int{i})
		return
	}
	b.run(ctx, []int{i})
	if it.called || it.done { // otherwise it was not tried, for example because the database failed
		b.c.memory.survived(it.hash)
	}
	if it.done && !it.committed { // it is parked, and the letter says why
		return
	}
	// a shutdown must not count as an end of the process
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeWithin)
	defer cancel()
	err = b.c.cfg.Store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		return b.c.letters.lot.TakeDeadLetter(ctx, tx, DeadLetter{ID: id, Cause: observe.CauseCrashed})
	})
	if err != nil && !errors.Is(err, ErrNotParked) {
		b.c.cfg.Logger.WarnContext(ctx, "the dead letter of a trial cannot be removed, although the trial is over: discard it", append(it.attrs(), "letter", id, "error", err)...)
	}
}

// trialTurn says whether a batch may try suspects.
type trialTurn uint8

const (
	unasked trialTurn = iota
	taken
	refused // it has waited for trialPatience
)

// takeTrials reports whether this batch may try suspects now. If so, it may until endTrials.
func (b *batch[TTx]) takeTrials(ctx context.Context) bool {
	if b.turn != unasked {
		return b.turn == taken
	}
	timer := time.NewTimer(trialPatience)
	defer timer.Stop()
	select {
	case b.c.trial <- struct{}{}:
		b.turn = taken
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	b.turn = refused
	return false
}

// endTrials lets another batch try suspects.
func (b *batch[TTx]) endTrials() {
	if b.turn == taken {
		<-b.c.trial
	}
	b.turn = unasked
}

// trial is one message, a suspect, that is tried alone.
type trial[TTx any] struct {
	b  *batch[TTx]
	i  int
	it *item
}

// failed defers the message, whose trial could not begin because of err.
func (t *trial[TTx]) failed(ctx context.Context, epoch int, err error) {
	b, it := t.b, t.it
	result := decide.Failed
	if b.c.classify.refusesLetter(ctx, err) {
		result = decide.Unstored
		b.c.cfg.Logger.ErrorContext(ctx, "message cannot be parked, because the database refuses its dead letter: it is deferred, and other messages go on",
			append(it.attrs(), "error", err)...)
	}
	b.settle(ctx, t.i, epoch, ofLetters, decide.AfterPark(result, decide.Verdict{}, nil, b.c.memory.past(it.hash),
		b.now(it)), err)
}

// turnsAfter is how many times in a row a message may lose to other transactions before it waits for its turn: one
// Consumer runs the handlers of such messages one after the other, because at the same time they would go on losing to
// each other.
const turnsAfter = 3

// runInTurn handles items[i] in a transaction of its own. A message that has lost to other transactions again and again
// waits until no other such message runs.
func (b *batch[TTx]) runInTurn(ctx context.Context, i int) {
	times := b.c.memory.past(b.items[i].hash).Contended
	if times < turnsAfter {
		b.run(ctx, []int{i})
		return
	}
	select {
	case b.c.turn <- struct{}{}:
		defer func() { <-b.c.turn }()
		b.run(ctx, []int{i})
	default:
		err := errors.New("it waits for another message whose handler uses rows that other transactions hold or change")
		b.retry([]int{i}, &RetryError{Err: err, After: b.c.cfg.backoff(times), Held: true}, observe.CauseDatabase)
	}
}

// begin returns during how many trials a process ended; negative: the message needs none, because its handler does not
// run again, or must have none, which would replace and take its letter. If another trial may be made, begin writes the
// letter for it.
func (t *trial[TTx]) begin(ctx context.Context, id DeadLetterID) (times int, err error) {
	b, it := t.b, t.it
	found, err := b.c.letters.lot.DeadLetters(ctx, DeadLetterFilter{ID: id, Consumer: b.c.cfg.Name, Limit: 1})
	if err != nil {
		return 0, err
	}
	for _, l := range found {
		if l.Cause != observe.CauseCrashed {
			return -1, nil
		}
		times = l.Times
	}
	if times >= trialsMost {
		return times, nil
	}
	if len(found) == 0 && b.isCommitted(ctx, it) {
		return -1, nil
	}
	letter := b.pass.newLetter(ctx, it, observe.CauseCrashed, fmt.Sprintf(
		"delivered %d times, and processes may have ended because of it: a process tries it alone; if this letter stays, that process has ended",
		it.msg.Attempt))
	return times, b.c.letters.parkAgain(ctx, nil, letter)
}

// isCommitted reports whether the message is known to be committed: after a process was killed, most suspects are.
func (b *batch[TTx]) isCommitted(ctx context.Context, it *item) bool {
	reader, ok := b.c.cfg.Store.(driver.KeyReader)
	if !ok {
		return false
	}
	_, committed, err := reader.Lookup(ctx, it.rec.Key)
	return err == nil && committed
}
