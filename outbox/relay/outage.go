package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"
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

// outages remembers which operations fail, so that each outage is logged twice: after failuresToLog failures, and at its end.
type outages struct {
	logger *slog.Logger

	mu          sync.Mutex
	byOperation map[operation]*outage
}

type outage struct {
	since    time.Time
	failures int
	logged   bool
}

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
	log := !out.logged && (out.failures >= failuresToLog || op == opOpen)
	out.logged = out.logged || log
	o.mu.Unlock()
	if log {
		o.logger.ErrorContext(ctx, "relay: the database fails; nothing is lost, and the relay tries again", "relay", relay, "operation", string(op), "error", err)
	}
}

func (o *outages) recovered(ctx context.Context, op operation) {
	o.mu.Lock()
	out := o.byOperation[op]
	delete(o.byOperation, op)
	o.mu.Unlock()
	if out != nil && out.logged {
		o.logger.InfoContext(ctx, "relay: the database works again", "operation", string(op), "after", time.Since(out.since).Round(time.Millisecond))
	}
}

func (r *Relay) queueFailed(ctx context.Context, op operation, err error) {
	r.outages.failed(ctx, op, r.cfg.Name, err)
	r.trace(ctx, r.cfg.Trace.QueueFailed, Event{Err: err})
}
