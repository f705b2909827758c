package pgxstore

import (
	"context"
	"fmt"
	"time"
)

// returned records that the handler of b has returned err. The caller holds mu.
func (f *interleaving) returned(b *branch, err error) {
	b.returned = true
	for f.low < len(f.branches) && f.branches[f.low].returned {
		f.low++
	}
	switch {
	case err != nil:
		f.fail(b.place, err)
	case b.using || b.open > 0:
		f.fail(b.place, errLeftOpen)
	}
	f.nudge(f.turn == b)
}

// fail records the first failure. It ends the ctx of all handlers and of the pipeline. The caller holds mu.
func (f *interleaving) fail(place int, err error) {
	if f.err == nil {
		f.failed, f.err = place, err
		f.cancel(fmt.Errorf("pgxstore: another handler of the same transaction failed, and nothing is committed: %v", err)) //nolint:errorlint // not this handler's error
		f.nudge(true)
	}
}

// nudge records that something happened, and wakes the goroutine of Interleave if that matters or if no handler is busy. The caller holds mu.
func (f *interleaving) nudge(matters bool) {
	f.moves++
	if !matters && f.busy > 0 {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run answers the branches until all handlers have returned.
func (f *interleaving) run() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.runs++; {
	case f.done:
		return
	case f.runs > 1:
		f.fail(-1, errPanicked)
	}
	idle := false // nothing happened during the latest wait
	for f.live > 0 || f.turn != nil && f.err == nil {
		quiet := f.busy == 0 || idle
		turn := f.low < len(f.branches) && f.branches[f.low].waits == waitsForTurn
		switch {
		case f.err != nil:
			f.refuse()
			idle = f.wait(0)
		case f.turn != nil && f.turn.returned:
			f.verify()
			idle = false
		case f.turn != nil && len(f.queue)+f.turns > 0:
			if idle && !f.turn.using {
				f.fail(-1, errStalled)
			}
			idle = f.wait(f.stallsAfter)
		case f.turn != nil:
			idle = f.wait(0)
		case turn && quiet && (len(f.queue) == 0 || f.passed == maxPassed):
			f.grant(f.branches[f.low])
			idle, f.passed = false, 0
		case len(f.queue) > 0 && quiet:
			if turn {
				f.passed++
			}
			f.send()
			idle = false
		case len(f.queue) > 0, turn:
			idle = f.wait(f.lingers)
		case f.turns > 0:
			if idle {
				f.fail(-1, errStalled)
			}
			idle = f.wait(f.stallsAfter)
		default:
			idle = f.wait(0)
		}
	}
	f.refuse() // a goroutine that a handler has left behind
	f.done = true
}

// wait waits until a handler wakes the goroutine of Interleave, or until d has passed; 0: no limit. idle reports that d has passed and that
// nothing happened. The caller holds mu.
func (f *interleaving) wait(d time.Duration) (idle bool) {
	if f.live == 0 {
		return false
	}
	before := f.moves
	_ = f.unlocked(func() error {
		f.timer.Stop()
		if d > 0 {
			f.timer.Reset(d)
		}
		select {
		case <-f.wake:
		case <-f.timer.C:
			idle = true
		}
		return nil
	})
	return idle && f.moves == before
}

// unlocked calls do without mu, which the caller holds, also if do panics.
func (f *interleaving) unlocked(do func() error) error {
	f.mu.Unlock()
	defer f.mu.Lock()
	return do()
}

// refuse answers all branches that wait after a failure.
func (f *interleaving) refuse() {
	for _, b := range f.branches {
		f.answer(b, context.Cause(f.ctx))
	}
	f.queue = nil
}

// answer lets the handler of b go on. The caller holds mu.
func (f *interleaving) answer(b *branch, err error) {
	if b.waits == waitsForNothing { // it has given up
		return
	}
	if b.waits == waitsForTurn {
		f.turns--
	}
	b.waits, b.err = waitsForNothing, err
	f.busy++
	f.moves++
	b.answered <- struct{}{}
}

// grant gives b its turn. It verifies the transaction before, so that what goes wrong later is the fault of this handler.
func (f *interleaving) grant(b *branch) {
	err := f.unlocked(func() error {
		if err := verifyTx(f.ctx, f.tx); err != nil {
			return err
		}
		return f.move(f.ctx, b.place)
	})
	if err != nil {
		f.fail(-1, err)
		return
	}
	if b.waits == waitsForTurn {
		f.turn, b.alone = b, true
		f.answer(b, nil)
	}
}

// verify checks the transaction after a turn, and ends the turn.
func (f *interleaving) verify() {
	b := f.turn
	err := f.unlocked(func() error { return verifyTx(f.ctx, f.tx) })
	f.turn = nil
	if err != nil {
		f.fail(b.place, err)
	}
}

// move gives the guard the outbox messages of all branches up to place, whose handlers have returned or wait for their turn. So the
// messages of a transaction are in the order of the handlers.
func (f *interleaving) move(ctx context.Context, place int) error {
	for ; f.moved <= place; f.moved++ {
		b := f.branches[f.moved]
		f.mu.Lock()
		rows := b.outgoing
		b.outgoing = nil
		f.mu.Unlock()
		if len(rows) == 0 {
			continue
		}
		if err := f.tx.add(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}
