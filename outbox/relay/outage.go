package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/observe"
)

// operation is a call of the Queue. One may fail while others work: a missing privilege stops only one.
type operation string

const (
	opOpen     operation = "open"
	opRenew    operation = "renew"
	opLease    operation = "lease"
	opSettle   operation = "settle"
	opMaintain operation = "maintain"
)

// failuresToLog is how many failures in a row are an outage. A single one, such as a deadlock, is routine.
const failuresToLog = 3

// outages remembers which operations fail. Each outage is logged after failuresToLog failures, once a minute while it
// lasts, and at its end.
type outages struct {
	logger *slog.Logger
	pauses *pauses

	mu          sync.Mutex
	byOperation map[operation]*outage
}

type outage struct {
	since    time.Time
	failures int
	logged   time.Time // zero: not yet
}

const outageLogInterval = time.Minute

var databasePause = pauseKey{cause: observe.CauseDatabase}

func (o *outages) failed(ctx context.Context, op operation, relay string, err error) {
	o.mu.Lock()
	if o.byOperation == nil {
		o.byOperation = make(map[operation]*outage)
	}
	out := o.byOperation[op]
	if out == nil {
		out = &outage{since: time.Now()}
		o.byOperation[op] = out
	}
	out.failures++
	now := time.Now()
	begins := out.logged.IsZero() && (out.failures >= failuresToLog || op == opOpen)
	goesOn := !out.logged.IsZero() && now.Sub(out.logged) >= outageLogInterval
	if begins || goesOn {
		out.logged = now
	}
	if begins {
		o.pauses.begin(ctx, databasePause, err)
	}
	since := out.since
	o.mu.Unlock()
	o.pauses.report()
	switch {
	case goesOn:
		o.logger.WarnContext(ctx, "relay: still waiting for the database; nothing is lost, and the relay tries again",
			"relay", relay, "operation", string(op),
			"since", since.UTC().Format(time.RFC3339), "paused", now.Sub(since).Round(time.Second), "error", err)
	case begins:
		o.logger.ErrorContext(ctx, "relay: the database fails; nothing is lost, and the relay tries again", "relay",
			relay, "operation", string(op), "error", err)
	}
}

func (o *outages) recovered(ctx context.Context, op operation) {
	o.mu.Lock()
	out := o.byOperation[op]
	delete(o.byOperation, op)
	logged := out != nil && !out.logged.IsZero()
	if logged {
		o.pauses.end(ctx, databasePause)
	}
	o.mu.Unlock()
	o.pauses.report()
	if logged {
		o.logger.InfoContext(ctx, "relay: the database works again", "operation", string(op), "after",
			time.Since(out.since).Round(time.Millisecond))
	}
}

// reopened ends the outages of a session that another one has replaced: it may be long until the new session has
// something to settle.
func (o *outages) reopened(ctx context.Context) {
	for _, op := range [...]operation{opOpen, opRenew, opLease, opSettle, opMaintain} {
		o.recovered(ctx, op)
	}
}

func (r *Relay) queueFailed(ctx context.Context, op operation, err error) {
	r.outages.failed(ctx, op, r.cfg.Name, err)
}
