package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Trace has hooks for metrics and spans. Nil hooks are not called. Hooks run on the relay's goroutines, several at a
// time and never under a lock: they must be quick and safe for concurrent use. A panic of a hook is logged and has no
// other effect.
type Trace struct {
	// Start is called before each call of a Publisher, which gets the ctx that it returns; that must be derived from
	// ctx. If it is nil, ctx is used. Published is called when the Publisher has returned: errs[i] is its answer for
	// p.Messages[i], nil if it was confirmed.
	Start     func(ctx context.Context, p *Publishing) context.Context
	Published func(ctx context.Context, p *Publishing, errs []error)

	// Settled is called after the outcomes of a batch were written to the outbox. When the lease is lost before, it is
	// not called for those messages, which will be published again. The hook must not keep messages.
	Settled func(ctx context.Context, messages []Settlement)

	// Paused and Resumed are called when the relay begins and ends to make no progress: with observe.CauseDatabase when
	// the database has failed three times in a row, and with observe.CauseBroker when a Publisher is unavailable or,
	// with Topic, when a topic is missing or closed to this relay. Resumed is also called two minutes after no message
	// waits for them any more, for example because an operator has discarded the last one.
	Paused  func(ctx context.Context, p observe.Pause)
	Resumed func(ctx context.Context, p observe.Pause)

	// WentBack is called, apart from any message, after the database has lost commits, as in a failover to a standby that
	// lacked them, so that Run has published messages whose transactions may be gone. The Queue must implement Positions
	// of dedup/driver; the stores of this module do.
	WentBack func(ctx context.Context, l observe.Loss)

	// Lease is called for each change and each renewal of what the relay holds, every few seconds.
	Lease func(ctx context.Context, e LeaseEvent)
}

// Then returns a Trace that calls the hooks of t and then those of u. Start of u gets the ctx of t's. Both may be nil.
// A panic of one hook does not keep the other from being called, except in Start.
func (t *Trace) Then(u *Trace) *Trace {
	if t == nil {
		t = &Trace{}
	}
	both := *t
	if u == nil {
		return &both
	}
	both.Start = hooks.ThenStart(t.Start, u.Start)
	both.Published = hooks.ThenWith(t.Published, u.Published)
	both.Settled = hooks.Then(t.Settled, u.Settled)
	both.Paused = hooks.Then(t.Paused, u.Paused)
	both.Resumed = hooks.Then(t.Resumed, u.Resumed)
	both.WentBack = hooks.Then(t.WentBack, u.WentBack)
	both.Lease = hooks.Then(t.Lease, u.Lease)
	return &both
}

// Publishing is one call of a Publisher.
type Publishing struct {
	Relay    string           // Config.Name
	Messages []outbox.Message // with the headers that are published; the Publisher may have changed them
	Began    time.Time
}

// Settlement is what was settled for one message.
type Settlement struct {
	Relay   string          // Config.Name
	Message *outbox.Stored  // must not be changed
	Outcome observe.Outcome // Processed, Retried, Held or Parked
	Cause   observe.Cause   // empty for Processed
	Err     error           // nil for Processed, and for a message that was not tried
	After   time.Duration   // of Retried and Held: until the next try; 0: at once
}

// LeaseEvent is a change of what a relay holds.
type LeaseEvent struct {
	Relay string // Config.Name
	Kind  LeaseKind
	Hold  driver.Hold // of LeaseTaken and LeaseRenewed
	Err   error       // of LeaseLost and LeaseStale: what was in flight may be published twice
}

// LeaseKind says what happened to a lease.
type LeaseKind string

// The kinds of LeaseEvents.
const (
	LeaseTaken   LeaseKind = "taken"   // by a new session
	LeaseRenewed LeaseKind = "renewed" // by the session that holds it
	LeaseLost    LeaseKind = "lost"    // it expired
	LeaseStale   LeaseKind = "stale"   // outcomes could not be settled, because another relay has taken a shard
)

// call calls the Publisher p.
func (b *batch) call(ctx context.Context, p *publisherState, positions []int,
	msgs []outbox.Message,
) (errs []error, usable bool) {
	r, leased := b.relay, b.leasedFor(p, positions, msgs)
	if r.cfg.Trace.Start == nil && r.cfg.Trace.Published == nil {
		return p.publish(ctx, msgs, leased)
	}
	publishing := &Publishing{Relay: r.cfg.Name, Messages: msgs, Began: time.Now()}
	ctx = r.starts(ctx, publishing)
	errs, usable = p.publish(ctx, msgs, leased)
	r.published(ctx, publishing, errs)
	return errs, usable
}

func (r *Relay) starts(ctx context.Context, p *Publishing) context.Context {
	if r.cfg.Trace.Start == nil {
		return ctx
	}
	var started context.Context
	r.panics.Call(ctx, "Start", func() { started = r.cfg.Trace.Start(ctx, p) })
	if started != nil {
		return started
	}
	return ctx
}

func (r *Relay) published(ctx context.Context, p *Publishing, errs []error) {
	if r.cfg.Trace.Published != nil {
		r.panics.Call(ctx, "Published", func() { r.cfg.Trace.Published(ctx, p, slices.Clone(errs)) })
	}
}

// settled calls the hook Settled.
func (b *batch) settled(ctx context.Context, outcomes []driver.Outcome) {
	hook := b.relay.cfg.Trace.Settled
	if hook == nil || len(outcomes) == 0 {
		return
	}
	all := make([]Settlement, len(outcomes))
	for i := range outcomes {
		all[i] = b.settlement(&outcomes[i])
	}
	hooks.Call(ctx, &b.relay.panics, "Settled", hook, all)
}

func (b *batch) settlement(o *driver.Outcome) Settlement {
	s := Settlement{Relay: b.relay.cfg.Name, Message: &o.Stored, Err: o.Err, After: o.Delay}
	switch o.Verdict {
	case driver.Sent:
		s.Outcome = observe.Processed
	case driver.Parked:
		s.Outcome, s.Cause = observe.Parked, observe.CauseExhausted
		switch {
		case o.Unreadable != nil:
			s.Cause = observe.CauseUndecodable
		case outbox.IsPermanent(o.Err):
			s.Cause = observe.CausePermanent
		}
	case driver.Deferred:
		s.Outcome, s.Cause = observe.Retried, failureCause(o.Err)
		if o.BrokerFault {
			s.Outcome = observe.Held
		}
	case driver.Returned:
		s.Outcome, s.Cause, s.Err = observe.Held, observe.CauseCancelled, b.unavailableErr
		if s.Err != nil {
			s.Cause = observe.CauseBroker
		}
	}
	return s
}

// failureCause names the cause of err, an answer of a Publisher.
func failureCause(err error) observe.Cause {
	switch {
	case errors.Is(err, ErrParkLimit):
		return observe.CauseBudget
	case errors.As(err, new(*outbox.UnavailableError)), errors.As(err, new(*outbox.TopicError)):
		return observe.CauseBroker
	}
	return observe.CauseHandler
}

// lease calls the hook Lease.
func (r *Relay) lease(ctx context.Context, e LeaseEvent) {
	e.Relay = r.cfg.Name
	hooks.Call(ctx, &r.panics, "Lease", r.cfg.Trace.Lease, e)
}

// pauses counts what is paused for each cause and topic: the operations of the database that fail, the Publishers that
// are unavailable. The first one calls the hook Paused, and the end of the last one Resumed.
type pauses struct {
	panics          *hooks.Panics
	relay           string
	paused, resumed func(context.Context, observe.Pause)

	mu    sync.Mutex
	on    map[pauseKey]*pause
	order hooks.Order
}

type pauseKey struct {
	cause observe.Cause
	topic string
}

type pause struct {
	n     int
	since time.Time
	err   error // the latest
}

// begin records that one thing more is paused. Call it under the lock that guards its state, and report without that
// lock.
func (ps *pauses) begin(ctx context.Context, key pauseKey, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.on == nil {
		ps.on = make(map[pauseKey]*pause)
	}
	p := ps.on[key]
	if p == nil {
		p = &pause{since: time.Now()}
		ps.on[key] = p
	}
	p.err = err
	if p.n++; p.n == 1 {
		ps.add(ctx, "Paused", ps.paused, key, p)
	}
}

// end records that one thing less is paused. Call it as begin.
func (ps *pauses) end(ctx context.Context, key pauseKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.on[key]
	if p == nil {
		return
	}
	if p.n--; p.n == 0 {
		delete(ps.on, key)
		ps.add(ctx, "Resumed", ps.resumed, key, p)
	}
}

func (ps *pauses) add(ctx context.Context, name string, hook func(context.Context, observe.Pause), key pauseKey,
	p *pause,
) {
	if hook == nil {
		return
	}
	e := observe.Pause{Name: ps.relay, Topic: key.topic, Cause: key.cause, Err: p.err, Since: p.since}
	ps.order.Add(func() { hooks.Call(ctx, ps.panics, name, hook, e) })
}

// report calls the hooks that begin and end have added.
func (ps *pauses) report() { ps.order.Run() }
