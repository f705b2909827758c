package interleave

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// returned records that h has returned err. The caller holds mu.
func (in *interleaving) returned(h *handler, err error) {
	h.returned = true
	for in.low < len(in.handlers) && in.handlers[in.low].returned {
		in.low++
	}
	switch {
	case err != nil:
		in.fail(h.place, err)
	case h.using || h.open > 0:
		in.fail(h.place, pgxrows.ErrLeftOpen)
	}
	in.nudge(in.alone == h)
}

// fail records the first failure. It ends the ctx of all handlers and of the pipeline. The caller holds mu.
func (in *interleaving) fail(place int, err error) {
	if in.err == nil {
		in.failed, in.err = place, err
		in.cancel(fmt.Errorf("pgxstore: another handler of the same transaction failed, "+
			"and nothing is committed: %v", err)) // %v: it is not the error of this handler
		in.nudge(true)
	}
}

// nudge records that something happened, and wakes the goroutine of Run if that matters or if no handler is busy. The
// caller holds mu.
func (in *interleaving) nudge(matters bool) {
	in.moves++
	if !matters && in.busy > 0 {
		return
	}
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// run answers the handlers until all handlers have returned.
func (in *interleaving) run() {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch in.rounds++; {
	case in.done:
		return
	case in.rounds > 1:
		in.fail(-1, errPanicked)
	}
	idle := false // nothing happened during the latest wait
	for in.live > 0 || in.alone != nil && in.err == nil {
		quiet := in.busy == 0 || idle
		next := in.low < len(in.handlers) && in.handlers[in.low].waits == waitsToBeAlone
		switch {
		case in.err != nil:
			in.refuse()
			idle = in.wait(0)
		case in.alone != nil && in.alone.returned:
			in.verify()
			idle = false
		case in.alone != nil && len(in.queue)+in.waiting > 0:
			if idle && !in.alone.using {
				in.fail(-1, errStalled)
			}
			idle = in.wait(in.cfg.StallsAfter)
		case in.alone != nil:
			idle = in.wait(0)
		case next && quiet && (len(in.queue) == 0 || in.passed == maxPassed):
			in.grant(in.handlers[in.low])
			idle, in.passed = false, 0
		case len(in.queue) > 0 && quiet:
			if next {
				in.passed++
			}
			in.send()
			idle = false
		case len(in.queue) > 0, next:
			idle = in.wait(in.cfg.Lingers)
		case in.waiting > 0:
			if idle {
				in.fail(-1, errStalled)
			}
			idle = in.wait(in.cfg.StallsAfter)
		default:
			idle = in.wait(0)
		}
	}
	in.refuse() // a goroutine that a handler has left behind
	in.done = true
}

// wait waits until a handler wakes the goroutine of Run, or until d has passed; 0: no limit. idle reports that d has
// passed and that nothing happened. The caller holds mu.
func (in *interleaving) wait(d time.Duration) (idle bool) {
	if in.live == 0 {
		return false
	}
	before := in.moves
	_ = in.unlocked(func() error {
		in.timer.Stop()
		if d > 0 {
			in.timer.Reset(d)
		}
		select {
		case <-in.wake:
		case <-in.timer.C:
			idle = true
		}
		return nil
	})
	return idle && in.moves == before
}

// unlocked calls do without mu, which the caller holds, also if do panics.
func (in *interleaving) unlocked(do func() error) error {
	in.mu.Unlock()
	defer in.mu.Lock()
	return do()
}

// refuse answers all handlers that wait after a failure.
func (in *interleaving) refuse() {
	for _, h := range in.handlers {
		in.answer(h, context.Cause(in.ctx))
	}
	in.queue = nil
}

// answer lets h go on. The caller holds mu.
func (in *interleaving) answer(h *handler, err error) {
	if h.waits == waitsForNothing { // it has given up
		return
	}
	if h.waits == waitsToBeAlone {
		in.waiting--
	}
	h.waits, h.err = waitsForNothing, err
	in.busy++
	in.moves++
	h.answered <- struct{}{}
}

// grant gives h the transaction for itself.
func (in *interleaving) grant(h *handler) {
	err := in.unlocked(func() error {
		if err := in.cfg.Guard.Verify(in.ctx); err != nil {
			return err
		}
		return in.move(in.ctx, h.place)
	})
	if err != nil {
		in.fail(-1, err)
		return
	}
	if h.waits == waitsToBeAlone {
		in.alone, h.alone = h, true
		in.answer(h, nil)
	}
}

// verify checks the transaction after a handler that had it for itself.
func (in *interleaving) verify() {
	h := in.alone
	err := in.unlocked(func() error { return in.cfg.Guard.Verify(in.ctx) })
	in.alone = nil
	if err != nil {
		in.fail(h.place, err)
	}
}

// move does the late work of all handlers up to place, which have returned or wait to have the transaction for
// themselves. So it is done in the order of the handlers.
func (in *interleaving) move(ctx context.Context, place int) error {
	for ; in.moved <= place; in.moved++ {
		h := in.handlers[in.moved]
		in.mu.Lock()
		late := h.late
		h.late = nil
		in.mu.Unlock()
		for _, do := range late {
			if err := do(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
