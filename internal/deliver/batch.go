package deliver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// batch is the deliveries of one call of the Processor.
type batch struct {
	deliveries []*Delivery
	ctx        context.Context
	cancel     context.CancelCauseFunc
	answered   bool
	abandoned  bool // Drain gave up on it: its answers do not count
}

// dispatch begins as many batches as may be in work. dr.mu is held.
func (dr *Deliverer) dispatch() {
	for dr.ctx.Err() == nil && len(dr.running) < dr.cfg.Concurrency {
		picked, wake := dr.pick(time.Now())
		if len(picked) == 0 {
			dr.wakeAt(wake)
			return
		}
		b := &batch{deliveries: picked}
		b.ctx, b.cancel = context.WithCancelCause(dr.handling)
		for _, d := range picked {
			d.batch = b
			if d.Key != "" {
				dr.busy[d.Key] = b
			}
		}
		dr.running[b] = struct{}{}
		dr.handlers.Go(func() { dr.handle(b) })
	}
}

// pick takes into work the deliveries of the next batch, in order. A delivery that is in work or not due holds back the
// later ones with its key. wake is when the first delivery that is not due yet becomes due; zero: there is none.
func (dr *Deliverer) pick(now time.Time) (picked []*Delivery, wake time.Time) {
	most := dr.batchSize()
	var held map[string]bool
	size, end := 0, 0
	for ; end < len(dr.waiting); end++ {
		d := dr.waiting[end]
		if d.Key != "" && (dr.busy[d.Key] != nil || held[d.Key]) {
			continue
		}
		if d.notBefore.After(now) {
			if d.Key != "" {
				if held == nil {
					held = map[string]bool{}
				}
				held[d.Key] = true
			}
			if wake.IsZero() || d.notBefore.Before(wake) {
				wake = d.notBefore
			}
			continue
		}
		if len(picked) == most || len(picked) > 0 && dr.cfg.MaxBatchBytes > 0 && size+d.Size > dr.cfg.MaxBatchBytes {
			break
		}
		d.state = inWork
		picked = append(picked, d)
		size += d.Size
	}
	dr.removePicked(end)
	return picked, wake
}

// batchSize is the maximum number of deliveries in the next batch.
func (dr *Deliverer) batchSize() int {
	if !dr.cfg.SplitEvenly {
		return dr.cfg.MaxBatch
	}
	share := (dr.unsettled + dr.cfg.Concurrency - 1) / dr.cfg.Concurrency
	return min(max(share, 1), dr.cfg.MaxBatch)
}

// removePicked removes the picked deliveries, which are among the first end waiting ones. The later ones, which may be
// many, are not moved.
func (dr *Deliverer) removePicked(end int) {
	keep := end
	for i := end - 1; i >= 0; i-- {
		if d := dr.waiting[i]; d.state == waiting {
			keep--
			dr.waiting[keep] = d
		}
	}
	clear(dr.waiting[:keep])
	dr.waiting = dr.waiting[keep:]
}

// wakeAt makes dispatch run again at that time; zero: it runs at the next change.
func (dr *Deliverer) wakeAt(at time.Time) {
	switch {
	case at.IsZero():
	case dr.timer == nil:
		dr.timer = time.AfterFunc(time.Until(at), dr.wake)
	default:
		dr.timer.Reset(time.Until(at))
	}
}

func (dr *Deliverer) wake() {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.dispatch()
}

// handle is the goroutine of one batch.
func (dr *Deliverer) handle(b *batch) {
	defer b.cancel(nil)
	msgs := make([]*consumer.Message, len(b.deliveries))
	for i, d := range b.deliveries {
		msgs[i] = d.Message
	}
	errs := Call(b.ctx, dr.cfg.Processor, msgs)
	dr.mu.Lock()
	if b.abandoned {
		dr.mu.Unlock()
		return
	}
	b.answered = true
	o := dr.decide(b, errs)
	dr.mu.Unlock()
	for done := false; !done; {
		dr.settle(o.settled)
		dr.mu.Lock()
		dr.decideMore(b, &o) // for deliveries that were added meanwhile
		if done = len(o.settled) == 0; done {
			dr.release(b, o.kept)
		}
		dr.mu.Unlock()
	}
}

// release ends b. dr.mu is held.
func (dr *Deliverer) release(b *batch, kept []*Delivery) {
	for _, d := range b.deliveries {
		d.batch = nil
		if dr.busy[d.Key] == b {
			delete(dr.busy, d.Key)
		}
	}
	delete(dr.running, b)
	if len(kept) > 0 {
		for _, d := range kept {
			d.state = waiting
		}
		dr.waiting = append(dr.waiting, kept...)
		slices.SortFunc(dr.waiting, func(a, b *Delivery) int { return cmp.Compare(a.number, b.number) })
	}
	if len(dr.running) == 0 && dr.idle != nil {
		close(dr.idle)
		dr.idle = nil
	}
	dr.dispatch()
}
