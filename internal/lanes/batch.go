package lanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// batch is what is handed to the Processor at once.
type batch struct {
	deliveries []*Delivery
	ctx        context.Context
	cancel     context.CancelCauseFunc
	answered   bool
	abandoned  bool // nobody waits for its answers any more
}

// dispatch begins as many batches as there are lanes for. l.mu is held.
func (l *Lanes) dispatch() {
	for l.ctx.Err() == nil && len(l.running) < l.cfg.Concurrency {
		picked, wake := l.pick(time.Now())
		if len(picked) == 0 {
			l.wakeAt(wake)
			return
		}
		b := &batch{deliveries: picked}
		b.ctx, b.cancel = context.WithCancelCause(l.work)
		for _, d := range picked {
			d.state, d.batch = inWork, b
			if d.Key != "" {
				l.busy[d.Key] = b
			}
		}
		l.running[b] = struct{}{}
		l.handlers.Go(func() { l.handle(b) })
	}
}

// pick takes out what may be handled now, in order. wake is when the first of those that must wait is due; zero if none is.
func (l *Lanes) pick(now time.Time) (picked []*Delivery, wake time.Time) {
	var held map[string]bool
	size, full := 0, false
	l.takeOut(func(d *Delivery) bool {
		switch {
		case full || d.Key != "" && (l.busy[d.Key] != nil || held[d.Key]):
			return false
		case d.notBefore.After(now):
			if d.Key != "" {
				if held == nil {
					held = map[string]bool{}
				}
				held[d.Key] = true
			}
			if wake.IsZero() || d.notBefore.Before(wake) {
				wake = d.notBefore
			}
			return false
		case len(picked) == l.cfg.MaxBatch, len(picked) > 0 && l.cfg.MaxBatchBytes > 0 && size+d.Size > l.cfg.MaxBatchBytes:
			full = true
			return false
		}
		picked = append(picked, d)
		size += d.Size
		return true
	})
	return picked, wake
}

// wakeAt has dispatch run again; zero: something else will.
func (l *Lanes) wakeAt(at time.Time) {
	switch {
	case at.IsZero():
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), l.wake)
	default:
		l.timer.Reset(time.Until(at))
	}
}

func (l *Lanes) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch()
}

// handle is the goroutine of one batch.
func (l *Lanes) handle(b *batch) {
	defer b.cancel(nil)
	errs := l.process(b)
	l.mu.Lock()
	if b.abandoned {
		l.mu.Unlock()
		return
	}
	b.answered = true
	o := l.judge(b, errs)
	l.mu.Unlock()
	for done := false; !done; {
		l.settle(o.leave)
		l.mu.Lock()
		l.leaveMore(b, &o) // what came meanwhile, and must not overtake
		if done = len(o.leave) == 0; done {
			l.release(b, o.again)
		}
		l.mu.Unlock()
	}
}

func (l *Lanes) process(b *batch) []error {
	msgs := make([]*consumer.Message, len(b.deliveries))
	for i, d := range b.deliveries {
		msgs[i] = d.Message
	}
	return Call(b.ctx, l.cfg.Processor, msgs)
}

// outcome is what becomes of the deliveries of a batch.
type outcome struct {
	leave  []settlement
	again  []*Delivery                     // kept
	failed map[string]*consumer.RetryError // by ordering key: what left although it was not handled
}

type settlement struct {
	d   *Delivery
	err error
}

func (o *outcome) settle(d *Delivery, err error) {
	d.state = unknown
	o.leave = append(o.leave, settlement{d, err})
}

// fail settles d, and holds back what stands behind it.
func (o *outcome) fail(d *Delivery, err error) {
	o.settle(d, err)
	if d.Key == "" || o.failed[d.Key] != nil {
		return
	}
	retry := &consumer.RetryError{Err: fmt.Errorf("held back behind an earlier message of key %q: %w", d.Key, err), Uncounted: true}
	if first, ok := errors.AsType[*consumer.RetryError](err); ok {
		retry.After = first.After
	}
	if o.failed == nil {
		o.failed = map[string]*consumer.RetryError{}
	}
	o.failed[d.Key] = retry
}

// judge decides on the answers for b. l.mu is held.
func (l *Lanes) judge(b *batch, errs []error) (o outcome) {
	now, stop := time.Now(), l.ctx.Err() != nil
	ended := b.ctx.Err()
	for i, d := range b.deliveries {
		err := errs[i]
		retry, again := errors.AsType[*consumer.RetryError](err)
		if !again && ended != nil && errors.Is(err, ended) { // an answer to the cancelling, not to the message
			retry, again = &consumer.RetryError{Err: err, Uncounted: true}, true
		}
		behind := o.failed[d.Key]
		switch {
		case d.lost && err == nil:
			o.settle(d, ErrLost) // it was handled: what stands behind it may go on
		case d.lost:
			o.fail(d, ErrLost)
		case err == nil:
			o.settle(d, nil)
		case !again:
			o.fail(d, err)
			l.fail(fmt.Errorf("message %s was given up on and kept nowhere, so it stays unacknowledged; "+
				"a Store that is a consumer.ParkingLot would have kept it: %w", d.Message.Position, err))
		case behind != nil:
			o.settle(d, &consumer.RetryError{Err: retry.Err, After: max(retry.After, behind.After), Uncounted: true})
		case stop:
			o.fail(d, retry)
		case ended != nil && retry.Uncounted: // cancelled for another's sake
			d.again(now, 0, true)
			o.again = append(o.again, d)
		case l.cfg.Keep != nil && l.cfg.Keep(d, retry):
			if !retry.Uncounted {
				d.Message.Attempt++
			}
			d.again(now, retry.After, l.keptBefore(o.again, d))
			o.again = append(o.again, d)
		default:
			o.fail(d, retry)
		}
	}
	return o
}

// keptBefore reports whether an earlier delivery of d's key waits here.
func (l *Lanes) keptBefore(again []*Delivery, d *Delivery) bool {
	return d.Key != "" && slices.ContainsFunc(again, func(e *Delivery) bool { return e.Key == d.Key })
}

// again puts d off. held says that it waits for another. To be handled again at once is granted once; after that the wait grows,
// for a Processor that asks for it every time would keep a core and a database busy for nothing.
func (d *Delivery) again(now time.Time, after time.Duration, held bool) {
	switch {
	case after > 0 || held:
		d.spins = 0
	default:
		after = spinDelay(d.spins)
		d.spins++
	}
	d.notBefore = now.Add(after)
}

func spinDelay(spins int) time.Duration {
	if spins == 0 {
		return 0
	}
	return min(10*time.Millisecond<<min(spins-1, 10), time.Second)
}

// leaveMore looks for what must leave as well now that o.leave has left. l.mu is held.
func (l *Lanes) leaveMore(b *batch, o *outcome) {
	o.leave = nil
	again := o.again
	o.again = nil
	for _, d := range again {
		switch behind := o.failed[d.Key]; {
		case d.lost:
			o.fail(d, ErrLost)
		case behind != nil:
			o.settle(d, behind)
		case l.ctx.Err() != nil:
			o.fail(d, stopped)
		default:
			o.again = append(o.again, d)
		}
	}
	for _, d := range l.takeOut(func(d *Delivery) bool {
		return o.failed[d.Key] != nil || l.ctx.Err() != nil && (l.unreachable(d) || l.busy[d.Key] == b)
	}) {
		var err error = stopped
		if behind := o.failed[d.Key]; behind != nil {
			err = behind
		}
		o.settle(d, err)
	}
}

// release ends b. l.mu is held.
func (l *Lanes) release(b *batch, again []*Delivery) {
	for _, d := range b.deliveries {
		d.batch = nil
		if l.busy[d.Key] == b {
			delete(l.busy, d.Key)
		}
	}
	delete(l.running, b)
	if len(again) > 0 {
		for _, d := range again {
			d.state = waiting
		}
		l.waiting = append(l.waiting, again...)
		slices.SortFunc(l.waiting, func(a, b *Delivery) int { return cmp.Compare(a.number, b.number) })
	}
	if len(l.running) == 0 && l.quiet != nil {
		close(l.quiet)
		l.quiet = nil
	}
	l.dispatch()
}
