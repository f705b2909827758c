package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
)

// pause counts faults of the database. The more of them follow each other, the longer the consumer waits. A single fault, such as
// a deadlock, is routine; several in a row are logged.
type pause struct {
	report  reporter
	backoff func(int) time.Duration

	mu      sync.Mutex
	current int // epoch; of the transactions that began in one epoch and failed, only one counts
	faults  int // in a row
}

// reporter is a *hooks.Pause. Its methods are called under the lock that guards the reported state, and the functions that they return
// without it: otherwise the end of a pause could be reported before its beginning.
type reporter interface {
	Failing(ctx context.Context, loud bool, err error, about ...any) (tell func())
	Working(ctx context.Context) (tell func())
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
	report := p.report.Failing(ctx, faults >= faultsToLog, err, about...)
	p.mu.Unlock()
	report()
	return p.backoff(max(faults, deferrals+1))
}

// recovered records that the database has committed a transaction.
func (p *pause) recovered(ctx context.Context) {
	report := func() {}
	p.mu.Lock()
	if p.faults > 0 {
		p.current++
		p.faults = 0
		report = p.report.Working(ctx)
	}
	p.mu.Unlock()
	report()
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
