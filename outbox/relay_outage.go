package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// operation is a call to the Queue. Each may fail by itself: a missing privilege stops only one.
type operation string

const (
	opOpen   operation = "open"
	opRenew  operation = "renew"
	opLease  operation = "lease"
	opSettle operation = "settle"
	opTidy   operation = "tidy"
)

// failuresToLog is how many failures in a row are an outage; a lone one, such as a deadlock, is routine.
const failuresToLog = 3

// outages remembers faults of the database, so that each outage is logged twice: when it is one, and when it is over.
type outages struct {
	logger *slog.Logger

	mu sync.Mutex
	of map[operation]*outage
}

type outage struct {
	since    time.Time
	failures int
	logged   bool
}

func (o *outages) failed(ctx context.Context, op operation, relay string, err error) {
	o.mu.Lock()
	if o.of == nil {
		o.of = make(map[operation]*outage)
	}
	out := o.of[op]
	if out == nil {
		out = &outage{since: time.Now()}
		o.of[op] = out
	}
	out.failures++
	log := !out.logged && (out.failures >= failuresToLog || op == opOpen)
	out.logged = out.logged || log
	o.mu.Unlock()
	if log {
		o.logger.ErrorContext(ctx, "outbox: the relay's database fails; nothing is lost, and it tries again", "relay", relay, "operation", string(op), "error", err)
	}
}

func (o *outages) over(ctx context.Context, op operation) {
	o.mu.Lock()
	out := o.of[op]
	delete(o.of, op)
	o.mu.Unlock()
	if out != nil && out.logged {
		o.logger.InfoContext(ctx, "outbox: the relay's database works again", "operation", string(op), "after", time.Since(out.since).Round(time.Millisecond))
	}
}

func (r *Relay) queueFailed(ctx context.Context, op operation, err error) {
	r.outages.failed(ctx, op, r.cfg.Name, err)
	r.trace(ctx, onQueueFailed, Event{Err: err})
}
