package deliver

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// outcome is the result of a batch.
type outcome struct {
	settled []settlement         // to be passed to Settle
	kept    []*Delivery          // wait here for another attempt
	failed  map[string]*heldBack // by ordering key: a delivery was settled unhandled
}

// heldBack are the deliveries behind one that was settled unhandled.
type heldBack struct {
	err *consumer.RetryError // for each of them
	to  uint64               // the number of the last one
}

func (o *outcome) settle(d *Delivery, err error) {
	d.state = unknown
	o.settled = append(o.settled, settlement{d, err})
}

// fail settles d unhandled, and holds back those behind it. The broker delivers a lost one again, before the next of
// its key. So what was added since it was lost is not behind it.
func (o *outcome) fail(d *Delivery, err error) {
	o.settle(d, err)
	if d.Key == "" {
		return
	}
	held := o.failed[d.Key]
	if held == nil {
		held = &heldBack{err: &consumer.RetryError{Err: fmt.Errorf("held back behind an earlier message of key %q: %w", d.Key, err), Held: true}}
		if retry, ok := errors.AsType[*consumer.RetryError](err); ok {
			held.err.After = retry.After
		}
		if o.failed == nil {
			o.failed = map[string]*heldBack{}
		}
		o.failed[d.Key] = held
	}
	if d.lost() {
		held.to = max(held.to, d.lostAfter)
	} else {
		held.to = math.MaxUint64
	}
}

// behind returns the error for d if it is behind a delivery that was settled unhandled.
func (o *outcome) behind(d *Delivery) *consumer.RetryError {
	if held := o.failed[d.Key]; held != nil && d.number <= held.to {
		return held.err
	}
	return nil
}

// keeps reports that an earlier delivery of d's key is kept.
func (o *outcome) keeps(d *Delivery) bool {
	return d.Key != "" && slices.ContainsFunc(o.kept, func(e *Delivery) bool { return e.Key == d.Key })
}

// decide makes the outcome of b from the Processor's answers. dr.mu is held.
func (dr *Deliverer) decide(b *batch, errs []error) (o outcome) {
	now, stopping := time.Now(), dr.ctx.Err() != nil
	cancelled := b.ctx.Err()
	for i, d := range b.deliveries {
		err := errs[i]
		retry, again := errors.AsType[*consumer.RetryError](err)
		if !again && cancelled != nil && errors.Is(err, cancelled) {
			// the error of the cancelled context, not of the message
			retry, again = &consumer.RetryError{Err: err, Held: true}, true
		}
		behind := o.behind(d)
		switch {
		case d.lost() && err == nil:
			o.settle(d, ErrLost) // It was handled, so those behind it may go on.
		case d.lost():
			o.fail(d, ErrLost)
		case err == nil:
			o.settle(d, nil)
		case !again:
			err = fmt.Errorf("message %s was given up on and kept nowhere, so it stays unacknowledged; "+
				"a Consumer keeps what its handler fails on if its Store is a driver.ParkingLot: %w", d.Message.Position, err)
			o.fail(d, err)
			dr.fail(err)
		case behind != nil:
			o.fail(d, &consumer.RetryError{Err: retry.Err, After: max(retry.After, behind.After), Held: true})
		case stopping:
			o.fail(d, retry)
		case cancelled != nil && retry.Held: // because another delivery of the batch was lost
			d.postpone(now, 0, true)
			o.kept = append(o.kept, d)
		case dr.cfg.Keep != nil && dr.cfg.Keep(d, retry):
			if !retry.Held {
				d.Message.Attempt++
			}
			d.postpone(now, retry.After, o.keeps(d))
			o.kept = append(o.kept, d)
		default:
			o.fail(d, retry)
		}
	}
	return o
}

// decideMore is called when o.settled is settled. It adds deliveries to the outcome: those of b that were lost
// meanwhile, and waiting ones behind a failed one. After a stop it adds all deliveries that will not be handled. dr.mu
// is held.
func (dr *Deliverer) decideMore(b *batch, o *outcome) {
	kept := o.kept
	o.settled, o.kept = nil, nil
	for _, d := range kept {
		switch behind := o.behind(d); {
		case d.lost():
			o.fail(d, ErrLost)
		case behind != nil:
			o.fail(d, behind)
		case dr.ctx.Err() != nil:
			o.fail(d, stopped)
		default:
			o.kept = append(o.kept, d)
		}
	}
	stopping := dr.ctx.Err() != nil
	if len(o.failed) == 0 && !stopping {
		return
	}
	for _, d := range dr.remove(func(d *Delivery) bool {
		return o.behind(d) != nil || stopping && (dr.unreachable(d) || dr.busy[d.Key] == b)
	}) {
		if behind := o.behind(d); behind != nil {
			o.fail(d, behind)
		} else {
			o.settle(d, stopped)
		}
	}
}
