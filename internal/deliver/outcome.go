package deliver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// outcome is the result of a batch.
type outcome struct {
	settled []settlement                    // to be passed to Settle
	kept    []*Delivery                     // wait here for another attempt
	failed  map[string]*consumer.RetryError // by ordering key: a delivery was settled unhandled; the error is for those behind it
}

func (o *outcome) settle(d *Delivery, err error) {
	d.state = unknown
	o.settled = append(o.settled, settlement{d, err})
}

// fail settles d unhandled, and holds back those behind it.
func (o *outcome) fail(d *Delivery, err error) {
	o.settle(d, err)
	if d.Key == "" || o.failed[d.Key] != nil {
		return
	}
	behind := &consumer.RetryError{Err: fmt.Errorf("held back behind an earlier message of key %q: %w", d.Key, err), Uncounted: true}
	if retry, ok := errors.AsType[*consumer.RetryError](err); ok {
		behind.After = retry.After
	}
	if o.failed == nil {
		o.failed = map[string]*consumer.RetryError{}
	}
	o.failed[d.Key] = behind
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
		if !again && cancelled != nil && errors.Is(err, cancelled) { // the error of the cancelled context, not of the message
			retry, again = &consumer.RetryError{Err: err, Uncounted: true}, true
		}
		behind := o.failed[d.Key]
		switch {
		case d.lost && err == nil:
			o.settle(d, ErrLost) // It was handled, so those behind it may go on.
		case d.lost:
			o.fail(d, ErrLost)
		case err == nil:
			o.settle(d, nil)
		case !again:
			err = fmt.Errorf("message %s was given up on and kept nowhere, so it stays unacknowledged; "+
				"a Store that is a consumer.ParkingLot would have kept it: %w", d.Message.Position, err)
			o.fail(d, err)
			dr.fail(err)
		case behind != nil:
			o.settle(d, &consumer.RetryError{Err: retry.Err, After: max(retry.After, behind.After), Uncounted: true})
		case stopping:
			o.fail(d, retry)
		case cancelled != nil && retry.Uncounted: // because another delivery of the batch was lost
			d.postpone(now, 0, true)
			o.kept = append(o.kept, d)
		case dr.cfg.Keep != nil && dr.cfg.Keep(d, retry):
			if !retry.Uncounted {
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

// decideMore is called when o.settled is settled. It adds deliveries to the outcome: those of b that were lost meanwhile, and waiting ones
// behind a failed one. After a stop it adds all deliveries that will not be handled. dr.mu is held.
func (dr *Deliverer) decideMore(b *batch, o *outcome) {
	kept := o.kept
	o.settled, o.kept = nil, nil
	for _, d := range kept {
		switch behind := o.failed[d.Key]; {
		case d.lost:
			o.fail(d, ErrLost)
		case behind != nil:
			o.settle(d, behind)
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
		return o.failed[d.Key] != nil || stopping && (dr.unreachable(d) || dr.busy[d.Key] == b)
	}) {
		var err error = stopped
		if behind := o.failed[d.Key]; behind != nil {
			err = behind
		}
		o.settle(d, err)
	}
}
