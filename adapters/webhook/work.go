package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/observe"
)

// work is the context of the handlers of one delivery's events. It ends with the request until the first event is
// claimed. From then on the work outlives the request: if each sender that stops waiting cancelled the handler, a slow
// handler would never finish.
type work struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	detach func() (stopped bool) // makes ctx outlive the request

	mu        sync.Mutex
	isClaimed bool
}

func newWork(request context.Context) *work {
	wk := &work{}
	wk.ctx, wk.cancel = context.WithCancelCause(context.WithoutCancel(request))
	wk.detach = context.AfterFunc(request, func() { wk.cancel(context.Cause(request)) })
	return wk
}

// release frees what the contexts use.
func (wk *work) release() {
	wk.detach()
	wk.cancel(nil)
}

// claimed is called when an event is claimed, before its handler runs.
func (wk *work) claimed() {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if !wk.isClaimed {
		wk.isClaimed = wk.detach() // false: the request has just ended, and with it ctx
	}
}

// leave ends the work with cause unless an event is claimed. It reports whether the work goes on.
func (wk *work) leave(cause error) (goesOn bool) {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if !wk.isClaimed {
		wk.cancel(cause)
	}
	return wk.isClaimed
}

// handle hands the events to the Processor. It returns the response as soon as the handlers have returned, or the
// sender's deadline is near.
func (r *Receiver) handle(ctx context.Context, d *Delivery, events []Event, answerAt time.Time, held *share) *response {
	reply := &r.source.Reply
	msgs := make([]*consumer.Message, 0, len(events))
	replaced := false
	for i := range events {
		e := &events[i]
		if e.Drop == "" {
			msgs = append(msgs, r.message(e))
			continue
		}
		if e.Reply != nil && !replaced {
			reply, replaced = e.Reply, true
		}
		r.cfg.Logger.InfoContext(ctx, "webhook: event dropped", "source", r.source.Name, "reason", e.Drop, "tenant",
			e.Message.Tenant, "topic", e.Message.Topic, "id", e.Message.ID)
		r.cfg.Trace.Dropped(ctx, r.event(d.Time, TraceEvent{Message: &e.Message, Drop: e.Drop}))
	}
	if len(msgs) == 0 {
		return accepted(*reply)
	}
	if err := r.keys.check(msgs); err != nil {
		return later(verifyAgain, err)
	}
	wk, answered := r.begin(ctx), make(chan []error, 1)
	if wk == nil {
		return later(0, ErrShutdown)
	}
	held.keep() // the work may outlive the request
	go func() {
		defer held.done()
		defer r.end(wk)
		answered <- r.process(wk, d, msgs)
	}()
	due := time.NewTimer(time.Until(answerAt))
	defer due.Stop()
	select {
	case errs := <-answered:
		return r.answer(*reply, errs)
	case <-ctx.Done():
	case <-due.C:
	}
	select {
	case errs := <-answered: // at the same moment
		return r.answer(*reply, errs)
	default:
	}
	res := later(r.source.answerWithin(), nil)
	cause := errAnswerDue
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	if wk.leave(cause) && ctx.Err() == nil {
		r.cfg.Logger.WarnContext(ctx, "webhook: answered 503 before the handlers returned, because the sender's deadline is near; they go on, and a later delivery finds their result",
			"source", r.source.Name, "after", time.Since(d.Time).Round(time.Millisecond), "id", msgs[0].ID)
		r.cfg.Trace.Late(ctx, r.event(d.Time, TraceEvent{Status: res.status}))
	}
	return res
}

// message returns the message of e. Its age decides whether a failure is the last one: failures in a row say little,
// because a sender may try again within seconds.
func (r *Receiver) message(e *Event) *consumer.Message {
	msg := e.Message
	msg.Attempt = 1
	if r.source.GiveUpAfter > 0 && !msg.Time.IsZero() {
		msg.GiveUpAt = msg.Time.Add(r.source.GiveUpAfter)
	}
	return &msg
}

// process returns one error for each message, logs those that are not handled, and traces all.
func (r *Receiver) process(wk *work, d *Delivery, msgs []*consumer.Message) (errs []error) {
	seen := results{of: make(map[*consumer.Message]result, len(msgs))}
	ctx := driver.WithTrace(wk.ctx, seen.trace(wk.claimed))
	if err := r.starter.start(ctx); err != nil {
		errs = make([]error, len(msgs))
		for i := range errs {
			errs[i] = &consumer.RetryError{Err: fmt.Errorf("start: %w", err), Held: true}
		}
	} else {
		errs = deliver.Call(ctx, batches{r.cfg.Processor}, msgs)
	}
	var first error
	failed := 0
	for i, err := range errs {
		_, retry := errors.AsType[*consumer.RetryError](err)
		hook := r.cfg.Trace.Rejected
		switch result := seen.get(msgs[i]); {
		case retry:
			hook = r.cfg.Trace.Deferred
		case err != nil:
		case result == parked:
			hook = r.cfg.Trace.Parked
		case result == duplicate:
			hook = r.cfg.Trace.Duplicate
		default:
			hook = r.cfg.Trace.Accepted
		}
		hook(ctx, r.event(d.Time, TraceEvent{Message: msgs[i], Err: err}))
		if err != nil {
			if failed++; first == nil {
				first = fmt.Errorf("event %q: %w", msgs[i].ID, err)
			}
		}
	}
	if first != nil {
		r.cfg.Logger.WarnContext(ctx, "webhook: events not handled; the sender delivers them again", "source",
			r.source.Name, "failed", failed, "of", len(msgs), "error", first)
	}
	return errs
}

// answer returns the response to a delivery with these answers of the Processor.
func (r *Receiver) answer(reply Reply, errs []error) *response {
	var after time.Duration
	deferred := false
	for _, err := range errs {
		retry, again := errors.AsType[*consumer.RetryError](err)
		switch {
		case again:
			after, deferred = max(after, retry.After), true
		case err != nil: // the Processor did not keep the event
			return failed(nil)
		}
	}
	if deferred {
		return later(after, nil)
	}
	return accepted(reply)
}

// result is what the Processor's hooks say about a message whose answer is nil.
type result uint8

const (
	committed result = iota // also if there are no hooks
	duplicate
	parked
)

// results are those of the messages of one delivery.
type results struct {
	mu sync.Mutex
	of map[*consumer.Message]result
}

func (rs *results) get(msg *consumer.Message) result {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.of[msg]
}

func (rs *results) trace(claimed func()) *consumer.Trace {
	return &consumer.Trace{
		Claimed: func(context.Context, *consumer.Delivery, []*consumer.Message) { claimed() },
		Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			for i, msg := range d.Messages {
				switch outcomes[i].Outcome {
				case observe.Duplicate:
					rs.of[msg] = duplicate
				case observe.Parked:
					rs.of[msg] = parked
				default:
					rs.of[msg] = committed
				}
			}
		},
	}
}
