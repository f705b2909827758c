package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

const (
	// suspectAfter is how many deliveries more than MaxAttempts make a message a suspect, where this process has not seen it
	// fail: it may be its handler that ends each process.
	suspectAfter = 10

	// trialsMost is how many processes may end while they try a suspect alone.
	trialsMost = 3

	// takeWithin bounds taking back a letter, also after a shutdown began.
	takeWithin = 10 * time.Second
)

// suspects reports that items[i] was delivered so often, and nothing is known of it, that it may end the process.
func (b *batch[TTx]) suspects(it *item) bool {
	return b.lot != nil && it.rec.Key.ID != "" && it.refused == nil &&
		it.msg.Attempt > b.cfg.MaxAttempts+suspectAfter && !b.history.knows(it.derived)
}

// tryAlone handles items[i] in a transaction of its own. Before the handler of a suspect runs, a dead letter is committed that
// says so, and it is taken back when the handler has returned. A process that ends meanwhile leaves the letter, so that later
// ones can count: after trialsMost of them the message is parked, and its handler does not run any more. No two suspects of
// one Consumer are tried at a time, so that none is counted for what another one did.
func (b *batch[TTx]) tryAlone(ctx context.Context, i int) {
	it := &b.items[i]
	if it.done || b.down || !b.suspects(it) {
		b.run(ctx, []int{i})
		return
	}
	select {
	case b.trial <- struct{}{}:
		defer func() { <-b.trial }()
	default:
		b.retry(ctx, []int{i}, &RetryError{Err: errors.New("it waits until another message that may have ended processes was tried"), After: b.cfg.wait(b.deferrals + 1), Uncounted: true})
		return
	}
	epoch := b.pause.now()
	id := letterID(it)
	times, err := b.beginTrial(ctx, it, id)
	if err != nil {
		b.fault(ctx, []int{i}, epoch, fmt.Errorf("look for earlier trials: %w", err))
		return
	}
	if times < 0 { // it has a letter already, which a trial must not replace or take
		b.run(ctx, []int{i})
		return
	}
	if times >= trialsMost {
		it.refused = refuse(ReasonTrial, fmt.Errorf("%d processes ended while they tried this message alone, at delivery %d: it is not tried again", times, it.msg.Attempt))
		b.run(ctx, []int{i})
		return
	}
	b.run(ctx, []int{i})
	b.history.survived(it.derived)
	if it.done && !it.committed { // parked: the letter is its own now
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeWithin) // a shutdown must not count as an end
	defer cancel()
	err = b.cfg.Store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error { return b.lot.TakeDeadLetter(ctx, tx, id) })
	if err != nil && !errors.Is(err, ErrNotParked) {
		b.cfg.Logger.WarnContext(ctx, "the letter of a trial stays, although the trial is over: discard it", append(it.attrs(), "letter", id, "error", err)...)
	}
}

// beginTrial returns how many trials ended with their process; negative: the message has a letter of another reason. While
// another trial may be made it leaves a letter.
func (b *batch[TTx]) beginTrial(ctx context.Context, it *item, id DeadLetterID) (times int, err error) {
	found, err := b.lot.DeadLetters(ctx, DeadLetterFilter{ID: id, Consumer: b.cfg.Name, Limit: 1})
	if err != nil {
		return 0, err
	}
	for _, l := range found {
		if l.Reason != ReasonTrial {
			return -1, nil
		}
		times = l.Times
	}
	if times >= trialsMost {
		return times, nil
	}
	letter := DeadLetter{ID: id, Record: it.rec, Message: *it.msg, Reason: ReasonTrial, Cause: fmt.Sprintf(
		"delivered %d times without an outcome: a process tries it alone; if this letter stays, the process has ended meanwhile", it.msg.Attempt)}
	letter.Message.Raw, letter.Message.Malformed = nil, nil
	return times, b.cfg.Store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error { return b.lot.Park(ctx, tx, letter) })
}
