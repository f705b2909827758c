package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// pause counts faults of the database. The more of them follow each other, the longer the consumer waits. A single fault, such as
// a deadlock, is routine; several in a row are logged.
type pause struct {
	notice  *notice
	backoff func(int) time.Duration

	mu      sync.Mutex
	current int // epoch; of the transactions that began in one epoch and failed, only one counts
	faults  int // in a row
}

// faultsToLog is how many faults in a row are logged as a pause.
const faultsToLog = 3

// epoch returns the epoch of a transaction that begins now.
func (p *pause) epoch() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// fault returns how long to wait after err of a transaction that began in epoch and was deferred that many times. about
// names the message in the log, if the fault is about one message.
func (p *pause) fault(ctx context.Context, err error, epoch, deferrals int, about ...any) time.Duration {
	p.mu.Lock()
	if epoch == p.current {
		p.current++
		p.faults++
	}
	faults := p.faults
	p.mu.Unlock()
	p.notice.paused(ctx, faults >= faultsToLog, err, about...)
	return p.backoff(max(faults, deferrals+1))
}

// recovered records that the database has committed a transaction.
func (p *pause) recovered(ctx context.Context) {
	p.mu.Lock()
	faults := p.faults
	if faults > 0 {
		p.current++
		p.faults = 0
	}
	p.mu.Unlock()
	if faults > 0 {
		p.notice.resumed(ctx)
	}
}

// explain says in the log what is wrong when the store returns err. Only a person can correct most of these causes.
func explain(err error) string {
	switch {
	case errors.Is(err, dedup.ErrNameTaken):
		return "its Config.Name is already in use; see the error"
	case errors.Is(err, dedup.ErrSchema):
		return "the database lacks txonce's tables, or they do not fit this program; see the error"
	case errors.Is(err, dedup.ErrAccess):
		return "the database refuses access; see the error"
	case errors.Is(err, dedup.ErrNotDurable):
		return "the database's settings may lose commits; see the error"
	}
	return "the database fails"
}

// noticeEvery is how often a pause that goes on is logged.
const noticeEvery = time.Minute

// notice reports a pause: it logs when the pause begins, once a minute while it lasts, and when it ends. When it begins and
// when it ends, notice also calls Trace.Paused and Trace.Resumed.
type notice struct {
	logger    *slog.Logger
	trace     *Trace
	panics    *hooks.Panics
	name      string // the consumer's
	cause     observe.Cause
	why       func(err error) string // the cause of the pause, in words
	waitsFor  string                 // what ends it
	recovered string                 // what has ended it
	order     hooks.Order            // of the calls of hooks

	mu     sync.Mutex
	since  time.Time // when the pause began; zero: there is none
	logged time.Time // when it was last logged; zero: not yet
	err    error     // the latest error
}

// paused records that the pause begins or goes on. Nothing is logged until loud is first true.
func (n *notice) paused(ctx context.Context, loud bool, err error, about ...any) {
	now := time.Now()
	n.mu.Lock()
	if n.since.IsZero() {
		n.since = now
	}
	n.err = err
	begins, goesOn := loud && n.logged.IsZero(), !n.logged.IsZero() && now.Sub(n.logged) >= noticeEvery
	if begins || goesOn {
		n.logged = now
	}
	since := n.since
	if begins {
		n.hook(ctx, "Paused", n.trace.Paused)
	}
	n.mu.Unlock()
	n.order.Run()
	switch {
	case begins:
		n.logger.ErrorContext(ctx, "consumer paused: "+n.why(err), append(about, "error", err)...)
	case goesOn:
		n.logger.WarnContext(ctx, "consumer is still paused: "+n.why(err), append(about,
			"waits_for", n.waitsFor, "since", since.UTC().Format(time.RFC3339), "paused", now.Sub(since).Round(time.Second), "error", err)...)
	}
}

// resumed records that the pause is over, if there is one.
func (n *notice) resumed(ctx context.Context) {
	n.mu.Lock()
	since, logged := n.since, !n.logged.IsZero()
	if logged {
		n.hook(ctx, "Resumed", n.trace.Resumed)
	}
	n.since, n.logged, n.err = time.Time{}, time.Time{}, nil
	n.mu.Unlock()
	n.order.Run()
	if logged {
		n.logger.InfoContext(ctx, "consumer goes on: "+n.recovered, "paused", time.Since(since).Round(time.Millisecond))
	}
}

// hook adds a call of a hook, which order.Run makes. The caller holds mu.
func (n *notice) hook(ctx context.Context, name string, hook func(context.Context, observe.Pause)) {
	if hook == nil {
		return
	}
	p := observe.Pause{Name: n.name, Cause: n.cause, Err: n.err, Since: n.since}
	n.order.Add(func() { hooks.Call(ctx, n.panics, name, hook, p) })
}
