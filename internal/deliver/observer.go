package deliver

import (
	"context"
	"log/slog"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// Observer calls the hooks of a Subscriber's SourceTrace, and reports when its broker fails. It is safe for concurrent
// use.
type Observer struct {
	Broker *hooks.Pause

	system, source string
	trace          driver.SourceTrace
	panics         hooks.Panics
}

// NewObserver returns an Observer. adapter begins its log lines, such as "kafka". system and source are those of
// driver.SourceEvent. broker is the broker's name in the log. trace may be nil.
func NewObserver(adapter, system, source, broker string, trace *driver.SourceTrace, logger *slog.Logger) *Observer {
	o := &Observer{
		system: system, source: source, trace: *trace.Then(nil),
		panics: hooks.Panics{Logger: logger, Owner: adapter},
	}
	o.Broker = o.NewPause(broker)
	o.Broker.Paused, o.Broker.Resumed = o.trace.Paused, o.trace.Resumed
	return o
}

// NewPause returns a Pause that only logs, for an operation that may fail while messages are received. broker is the
// broker's name in the log.
func (o *Observer) NewPause(broker string) *hooks.Pause {
	return &hooks.Pause{
		Logger: o.panics.Logger, Owner: o.panics.Owner + ":", Panics: &o.panics,
		What:     observe.Pause{Name: o.source, Cause: observe.CauseBroker},
		Why:      func(error) string { return "trouble with " + broker + "; it tries again" },
		WaitsFor: "an answer of " + broker, Recovered: broker + " answers again",
	}
}

// Subscribed calls the hook of that name.
func (o *Observer) Subscribed(ctx context.Context) {
	o.call(ctx, "Subscribed", o.trace.Subscribed, driver.SourceEvent{})
}

// Unsubscribed calls the hook of that name. It also ends a pause: the next Run has an Observer of its own, which would
// report a second Paused.
func (o *Observer) Unsubscribed(ctx context.Context, err error) {
	o.Broker.End(ctx)
	o.call(ctx, "Unsubscribed", o.trace.Unsubscribed, driver.SourceEvent{Err: err})
}

// Assigned calls the hook of that name.
func (o *Observer) Assigned(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Assigned", o.trace.Assigned, e)
}

// Revoked calls the hook of that name.
func (o *Observer) Revoked(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Revoked", o.trace.Revoked, e)
}

// Gap calls the hook of that name.
func (o *Observer) Gap(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Gap", o.trace.Gap, e)
}

// WentBack calls the hook of that name.
func (o *Observer) WentBack(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "WentBack", o.trace.WentBack, e)
}

// Received calls the hook of that name.
func (o *Observer) Received(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Received", o.trace.Received, e)
}

// WantsAcks reports whether Acked has a hook.
func (o *Observer) WantsAcks() bool { return o.trace.Acked != nil }

// Acked calls the hook of that name.
func (o *Observer) Acked(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Acked", o.trace.Acked, e)
}

// Returned calls the hook of that name.
func (o *Observer) Returned(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Returned", o.trace.Returned, e)
}

// Lost calls the hook of that name.
func (o *Observer) Lost(ctx context.Context, e driver.SourceEvent) {
	o.call(ctx, "Lost", o.trace.Lost, e)
}

func (o *Observer) call(ctx context.Context, name string, hook func(context.Context, driver.SourceEvent),
	e driver.SourceEvent,
) {
	if hook == nil {
		return
	}
	e.System = o.system
	if e.Source == "" {
		e.Source = o.source
	}
	hooks.Call(ctx, &o.panics, name, hook, e)
}
