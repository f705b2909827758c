package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
)

// pause counts faults of the database. The more of them follow each other, the longer the consumer waits. A single
// fault, such as a deadlock, is routine; several in a row are logged.
type pause struct {
	report  reporter
	backoff func(int) time.Duration

	mu      sync.Mutex
	current int          // epoch; of the transactions that began in one epoch and failed, only one counts
	faults  int          // in a row
	broken  [stages]bool // where those faults were
	// when the message of the latest fault of ofLetters has been tried again, if this process has it
	letters time.Time
}

// stage is a part of a transaction that the database may fail. Only a COMMIT with that part shows that it works again.
type stage uint8

const (
	ofClaims   stage = iota // until the claims are answered, and the COMMIT of claims alone
	ofHandlers              // after a handler was called
	ofLetters               // when a dead letter is written or looked for
	stages
)

// lettersWithin is how much longer than its wait a message whose letter could not be written may stay away.
const lettersWithin = 10 * time.Second

// stage returns which part of the item's latest transaction failed.
func (it *item) stage() stage {
	if it.called {
		return ofHandlers
	}
	return ofClaims
}

// reporter is a *hooks.Pause. Its methods are called under the lock that guards the reported state, and the functions
// that they return without it: otherwise the end of a pause could be reported before its beginning.
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

// fault returns how long to wait after err of a transaction that began in epoch: as long as after that many failures,
// or longer. about names the message in the log, if the fault is about one message.
func (p *pause) fault(ctx context.Context, err error, at stage, epoch, failures int, about ...any) time.Duration {
	p.mu.Lock()
	if epoch == p.current {
		p.current++
		p.faults++
	}
	p.broken[at] = true
	faults := p.faults
	report := p.report.Failing(ctx, faults >= faultsToLog, err, about...)
	p.mu.Unlock()
	report()
	wait := p.backoff(max(faults, failures))
	if at == ofLetters {
		p.mu.Lock()
		p.letters = time.Now().Add(2*wait + lettersWithin)
		p.mu.Unlock()
	}
	return wait
}

// recovered records that the database has committed a transaction that got as far as at. The pause goes on while
// another part fails: a duplicate, a mismatch or a letter says nothing about the tables of the handlers. The work of a
// handler says nothing about letters, unless the message that was to be parked has stayed away, because another process
// has it.
func (p *pause) recovered(ctx context.Context, at stage) {
	report := func() {}
	p.mu.Lock()
	if p.faults > 0 {
		p.broken[ofClaims], p.broken[at] = false, false
		if at == ofHandlers && time.Now().After(p.letters) {
			p.broken[ofLetters] = false
		}
	}
	if p.faults > 0 && p.broken == [stages]bool{} {
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
	case errors.Is(err, dedup.ErrSettings):
		return "a setting of the database, the role or the DSN breaks txonce's statements; see the error"
	case errors.Is(err, dedup.ErrNotDurable):
		return "the database's settings may lose commits; see the error"
	}
	return "the database fails; if the error is about a statement of your handler, correct the statement, or run the migration that it needs"
}
