package consumer

import (
	"cmp"
	"context"
	"time"

	"github.com/txonce/txonce/consumer/internal/traced"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// Trace has hooks for metrics, spans, and callers that want to know what happened to their message. Nil hooks are not
// called. The processing of the messages waits for each hook, which runs on a goroutine of its own, never under a lock:
// hooks must be quick and safe for concurrent use. A panic of a hook, or a runtime.Goexit, is logged, and has no effect
// on the message. New copies the Trace, so later changes of its fields have no effect.
//
// Claimed and Attempt are called while the consumer keeps other calls away from the keys of the messages: if they
// process a message with such a key, they wait for themselves.
//
// Start and Done are called once for each pass. A call of ProcessBatch or Replay is one pass. Process makes one pass
// for each attempt; it sleeps between them. A crash ends a pass without Done.
type Trace struct {
	// Start begins a pass, before the database is used. The ctx that it returns goes to the store, to the handler and
	// to the later hooks of the pass; it must be derived from ctx. If it is nil, ctx is used.
	Start func(ctx context.Context, d *Delivery) context.Context

	// Claimed is called in a transaction: msgs are new, and their handlers run next. The transaction may still roll
	// back.
	Claimed func(ctx context.Context, d *Delivery, msgs []*Message)

	// Attempt is called after each transaction that claims messages for their handlers. Transactions that only park are
	// left out. With Config.MaxPerTransaction 1 the Store may still hold a connection then, which has the claim of the
	// next message: a hook that takes another one from the same pool waits forever if all are in use. Give such a hook
	// a ctx with a timeout, or a pool of its own.
	Attempt func(ctx context.Context, d *Delivery, a Attempt)

	// Parking is called when a message becomes a dead letter, before the letter is written; the transaction may still
	// roll back. It returns a text that identifies the pass, such as a traceparent of W3C, or an empty one. The text is
	// kept in the letter's header txonce-parked-by, and is Delivery.ParkedBy when the letter is replayed.
	Parking func(ctx context.Context, d *Delivery) (pass string)

	// Done ends a pass. outcomes[i] is about d.Messages[i]. It is final: an outcome that is neither Retried nor Held is
	// committed. The hook must not keep outcomes.
	Done func(ctx context.Context, d *Delivery, outcomes []MessageOutcome)

	// Paused and Resumed are called when the consumer begins and ends to make no progress: with observe.CauseDatabase
	// after three faults of the database in a row, and with observe.CauseBudget when Config.ParkLimit is spent. Those
	// of driver.WithTrace are not called.
	Paused  func(ctx context.Context, p observe.Pause)
	Resumed func(ctx context.Context, p observe.Pause)

	// WentBack is called after the database has lost what it had committed for messages that this Consumer has
	// acknowledged; see docs/operations.md. A Subscriber of Kafka reads them again by itself, and has a hook of its own.
	WentBack func(ctx context.Context, l observe.Loss)
}

// Delivery is what one pass works on. Hooks must not change it.
type Delivery struct {
	Consumer string
	Messages []*Message
	Letter   DeadLetterID // the dead letter that is replayed; zero: it is no replay
	ParkedBy string       // of a replay: what the hook Parking returned when the letter was written
	// when Process, ProcessBatch or Replay was called; later attempts of Process have their own time
	Began time.Time
}

// MessageOutcome is what a pass did with one message.
type MessageOutcome struct {
	Outcome observe.Outcome
	Cause   observe.Cause // empty for Processed, and for a Duplicate with the same content
	Key     dedup.Key     // Key.ID is empty if the message has no usable key
	Err     error         // nil for Processed and Duplicate
	After   time.Duration // of Retried and Held: until the next delivery
	Letter  DeadLetterID  // of Parked
}

// Attempt is the argument of Trace.Attempt: one transaction, of one message or of several.
type Attempt struct {
	Messages int // whose keys were claimed
	Ran      int // whose handlers were called
	Retry    bool

	Result observe.Result
	Cause  observe.Cause // empty if it was committed
	Err    error         // nil if it was committed

	Began time.Time
	Claim time.Duration // until the keys were claimed; 0: they were not
	Took  time.Duration // until COMMIT or ROLLBACK was answered
}

// Then returns a Trace that calls the hooks of t and then those of u. Start of u gets the ctx of t's. Both may be nil.
// A panic of one hook does not keep the other from being called, except in Start and Parking. Parking returns what the
// first hook returns, or the second if that is empty.
func (t *Trace) Then(u *Trace) *Trace {
	if t == nil {
		t = &Trace{}
	}
	both := *t
	if u == nil {
		return &both
	}
	both.Start = hooks.ThenStart(t.Start, u.Start)
	both.Claimed = hooks.ThenWith(t.Claimed, u.Claimed)
	both.Attempt = hooks.ThenWith(t.Attempt, u.Attempt)
	both.Parking = thenParking(t.Parking, u.Parking)
	both.Done = hooks.ThenWith(t.Done, u.Done)
	both.Paused = hooks.Then(t.Paused, u.Paused)
	both.Resumed = hooks.Then(t.Resumed, u.Resumed)
	both.WentBack = hooks.Then(t.WentBack, u.WentBack)
	return &both
}

// thenParking prefers the text of first.
func thenParking(first, second func(context.Context, *Delivery) string) func(context.Context, *Delivery) string {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, d *Delivery) string { return cmp.Or(first(ctx, d), second(ctx, d)) }
}

// trace returns the hooks for a pass: those of Config.Trace and those of driver.WithTrace.
func (c *Consumer[TTx]) trace(ctx context.Context) *Trace {
	if own, _ := ctx.Value(traced.Key{}).(*Trace); own != nil {
		return c.cfg.Trace.Then(own)
	}
	return c.cfg.Trace
}

// pass calls the hooks of one pass.
type pass struct {
	hooks    *Trace
	panics   *hooks.Panics
	delivery Delivery
	outcomes []MessageOutcome // nil: there is no hook Done
	one      [1]MessageOutcome
}

func (c *Consumer[TTx]) newPass(ctx context.Context, msgs []*Message, letter DeadLetterID) pass {
	p := pass{hooks: c.trace(ctx), panics: c.panics, delivery: Delivery{Consumer: c.cfg.Name, Messages: msgs, Letter: letter}}
	if p.hooks.observes() {
		p.delivery.Began = time.Now()
	}
	return p
}

// observes reports whether a hook gets the Delivery. Reading the clock would cost more than all else that a consumer
// without hooks does for them.
func (t *Trace) observes() bool {
	return t.Start != nil || t.Claimed != nil || t.Attempt != nil || t.Parking != nil || t.Done != nil
}

// start calls Start.
func (p *pass) start(ctx context.Context) context.Context {
	switch n := len(p.delivery.Messages); {
	case p.hooks.Done == nil:
	case n == 1:
		p.outcomes = p.one[:]
	default:
		p.outcomes = make([]MessageOutcome, n)
	}
	if p.hooks.Start == nil {
		return ctx
	}
	var started context.Context
	p.panics.Call(ctx, "Start", func() { started = p.hooks.Start(ctx, &p.delivery) })
	if started != nil {
		return started
	}
	return ctx
}

// outcome records what happened to message i. What is recorded last counts.
func (p *pass) outcome(i int, o MessageOutcome) {
	if p.outcomes != nil {
		p.outcomes[i] = o
	}
}

func (p *pass) claimed(ctx context.Context, msgs []*Message) {
	if p.hooks.Claimed != nil {
		p.panics.Call(ctx, "Claimed", func() { p.hooks.Claimed(ctx, &p.delivery, msgs) })
	}
}

// parking returns what the hook Parking returns, or an empty text.
func (p *pass) parking(ctx context.Context) (text string) {
	if p.hooks.Parking != nil {
		p.panics.Call(ctx, "Parking", func() { text = p.hooks.Parking(ctx, &p.delivery) })
	}
	return text
}

func (p *pass) done(ctx context.Context) {
	if p.hooks.Done != nil {
		p.panics.Call(ctx, "Done", func() { p.hooks.Done(ctx, &p.delivery, p.outcomes) })
	}
}

// transaction measures one transaction for the hook Attempt.
type transaction struct {
	pass    *pass // nil: there is no hook
	attempt Attempt
}

func (p *pass) transaction(messages int) (t transaction) {
	if p.hooks.Attempt == nil {
		return t
	}
	return transaction{p, Attempt{Messages: messages, Began: time.Now()}}
}

// claimed records that the store has answered the claims.
func (t *transaction) claimed() {
	if t.pass != nil {
		t.attempt.Claim = max(time.Since(t.attempt.Began), 1)
	}
}

func (t *transaction) end(ctx context.Context, result observe.Result, cause observe.Cause, err error) {
	if t.pass == nil {
		return
	}
	a := &t.attempt
	a.Result, a.Cause, a.Err, a.Took = result, cause, err, time.Since(a.Began)
	t.pass.panics.Call(ctx, "Attempt", func() { t.pass.hooks.Attempt(ctx, &t.pass.delivery, *a) })
}
