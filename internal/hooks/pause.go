package hooks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/observe"
)

// Pause reports one kind of pause: it logs when the pause begins, once a minute while it lasts, and when it ends. When
// it begins and when it ends, it also calls the hooks Paused and Resumed, in turns. The exported fields must not change
// after the first call. It is safe for concurrent use.
type Pause struct {
	Logger *slog.Logger
	Owner  string // begins the log lines, such as "consumer"

	Panics          *Panics
	Paused, Resumed func(ctx context.Context, p observe.Pause) // may be nil
	What            observe.Pause                              // Name, Topic and Cause

	Why       func(err error) string // the cause of the pause, in words
	WaitsFor  string                 // what ends it
	Recovered string                 // what has ended it

	order Order // of the calls of hooks

	mu     sync.Mutex
	since  time.Time // when the pause began; zero: there is none
	logged time.Time // when it was last logged; zero: not yet
	err    error     // the latest error
}

// every is how often a pause that goes on is logged.
const every = time.Minute

// Failed records that the pause begins or goes on. Nothing is reported until loud is first true. about has attributes
// for the log.
func (p *Pause) Failed(ctx context.Context, loud bool, err error, about ...any) {
	p.Failing(ctx, loud, err, about...)()
}

// Failing is Failed for a caller that decides under a lock whether there is a pause. It calls tell, which logs and
// calls hooks, without the lock. If it called Failed after its lock, the end of the pause could be recorded before its
// beginning.
func (p *Pause) Failing(ctx context.Context, loud bool, err error, about ...any) (tell func()) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = now
	}
	p.err = err
	begins, goesOn := loud && p.logged.IsZero(), !p.logged.IsZero() && now.Sub(p.logged) >= every
	if begins || goesOn {
		p.logged = now
	}
	since := p.since
	if begins {
		p.add(ctx, "Paused", p.Paused)
	}
	return func() {
		p.order.Run()
		switch {
		case begins:
			p.Logger.ErrorContext(ctx, p.Owner+" paused: "+p.Why(err), append(about, "error", err)...)
		case goesOn:
			p.Logger.WarnContext(ctx, p.Owner+" is still paused: "+p.Why(err), append(about,
				"waits_for", p.WaitsFor, "since", since.UTC().Format(time.RFC3339), "paused",
				now.Sub(since).Round(time.Second), "error", err)...)
		}
	}
}

// Worked records that the pause is over, if there is one.
func (p *Pause) Worked(ctx context.Context) { p.Working(ctx)() }

// Working is to Worked as Failing is to Failed.
func (p *Pause) Working(ctx context.Context) (tell func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, reported := p.since, !p.logged.IsZero()
	if reported {
		p.add(ctx, "Resumed", p.Resumed)
	}
	p.since, p.logged, p.err = time.Time{}, time.Time{}, nil
	if !reported {
		return func() {}
	}
	return func() {
		p.order.Run()
		p.Logger.InfoContext(ctx, p.Owner+" goes on: "+p.Recovered, "paused", time.Since(since).Round(time.Millisecond))
	}
}

// add adds a call of a hook, which order.Run makes. The caller holds mu.
func (p *Pause) add(ctx context.Context, name string, hook func(context.Context, observe.Pause)) {
	if hook == nil {
		return
	}
	e := p.What
	e.Err, e.Since = p.err, p.since
	p.order.Add(func() { Call(ctx, p.Panics, name, hook, e) })
}

// End ends the pause, if there is one, because what was paused has ended. It calls Resumed and logs nothing.
func (p *Pause) End(ctx context.Context) {
	p.mu.Lock()
	if !p.logged.IsZero() {
		p.add(ctx, "Resumed", p.Resumed)
	}
	p.since, p.logged, p.err = time.Time{}, time.Time{}, nil
	p.mu.Unlock()
	p.order.Run()
}
