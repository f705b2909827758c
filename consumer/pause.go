package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// pause is the consumer's memory of faults that are not a message's: it waits longer the more of them follow each other.
// A lone one, such as a deadlock, is routine; a row of them is logged once when it is one, and once when it is over.
type pause struct {
	logger  *slog.Logger
	backoff func(int) time.Duration

	mu     sync.Mutex
	epoch  int // changes with faults: of transactions that fail side by side only one counts
	faults int // in a row
	since  time.Time
	logged bool
}

// faultsToLog is how many faults in a row are an outage.
const faultsToLog = 3

// now returns the epoch that a transaction begins in.
func (p *pause) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// fault says how long to wait after err of a transaction that began in epoch and has been deferred that many times.
func (p *pause) fault(ctx context.Context, err error, epoch, deferrals int) time.Duration {
	p.mu.Lock()
	if epoch == p.epoch {
		p.epoch++
		if p.faults++; p.faults == 1 {
			p.since = time.Now()
		}
	}
	faults, log := p.faults, p.faults >= faultsToLog && !p.logged
	p.logged = p.logged || log
	p.mu.Unlock()
	if log {
		p.logger.ErrorContext(ctx, "consumer paused: the database is at fault; nothing is parked, and it tries again", "error", err)
	}
	return p.backoff(max(faults, deferrals+1))
}

// over says that the database has committed something.
func (p *pause) over(ctx context.Context) {
	p.mu.Lock()
	logged, since := p.logged, p.since
	if p.faults > 0 {
		p.epoch++
		p.faults, p.logged = 0, false
	}
	p.mu.Unlock()
	if logged {
		p.logger.InfoContext(ctx, "consumer goes on: the database commits again", "paused", time.Since(since).Round(time.Millisecond))
	}
}
