package consumertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// What happens at boundaries. A connection that is lost is an error of the database; a serialization failure is one
// that names its cause.
var (
	errCut    = fmt.Errorf("%w: the connection was lost", deduptest.ErrDown)
	errSerial = fmt.Errorf("%w: serialization failure", deduptest.ErrDeadlock)
)

// menu has the faults of each boundary.
var menu = map[string]sim.Choice{
	"register": sim.OneIn(30, "refused", "crash"),
	"begin":    sim.OneIn(15, "refused", "crash", "outage", sim.Freeze, sim.Stop),
	"claimed":  sim.OneIn(8, "cut", "serialization failure", "stall", "crash", sim.Freeze),
	"stmt":     sim.OneIn(10, "cut", "serialization failure", "stall", "delivery expires", "crash", sim.Freeze, sim.Stop),
	"step":     sim.OneIn(4, "stall", "delivery expires", "crash", sim.Freeze),
	"commit": sim.OneIn(4,
		"lost", "answer lost", "late", "late and lost", "serialization failure", "crash before", "crash after",
		"crash, COMMIT on its way", sim.Freeze, sim.Stop,
	),
	"answered":  sim.OneIn(6, "stall", "crash", sim.Freeze, sim.Stop),
	"rollback":  sim.OneIn(8, "crash", sim.Freeze),
	"held keys": sim.OneIn(2, "cut", "crash"),
	"ack":       sim.OneIn(6, "lost", "crash", sim.Freeze),
	"replay":    sim.OneIn(4, "crash", sim.Freeze),

	"open":    sim.OneIn(15, "refused", "crash"),
	"renew":   sim.OneIn(20, "cut", "answer lost", "stall", "crash", "outage", sim.Freeze),
	"lease":   sim.OneIn(40, "cut", "stall", "crash", sim.Freeze),
	"leased":  sim.OneIn(6, "stall", "crash", sim.Freeze, sim.Stop),
	"compose": sim.OneIn(6, "stall", "crash", sim.Freeze, sim.Stop),
	"publish": sim.OneIn(
		3, "refused", "unavailable", "answer lost", "only the last arrives", "stall", "crash before", "crash after",
		sim.Freeze, sim.Stop,
	),
	"settle": sim.OneIn(4, "cut", "answer lost", "stall", "crash before", "crash after", sim.Freeze, sim.Stop),
	"close":  sim.OneIn(3, "cut", "crash"),

	"request":     sim.OneIn(2, "lost", "answer lost", "late", "stall", "crash before", "crash after", sim.Freeze),
	"call record": sim.OneIn(5, "cut", "answer lost", "stall", "crash before", "crash after", sim.Freeze),
}

// Process is a process of a Simulation, from its start to its crash.
type Process struct {
	sim     *sim.Process
	of      *world
	role    string
	ctx     context.Context
	cancel  context.CancelFunc
	restart func()
	stopped bool     // it was told to stop, and another process has taken its place; mu guards it
	topics  []string // of a relay: those of Simulation.Publishers

	mu     sync.Mutex
	open   []*deduptest.Tx
	leased map[string]*processSession // that leased a message last, by its ID
}

func (w *world) process(role string, restart func()) *Process {
	p := &Process{
		sim: w.sim.NewProcess(role), of: w, role: role, restart: restart, leased: map[string]*processSession{},
	}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	p.sim.OnCrash = p.crashed
	p.sim.OnStop = p.stop
	p.sim.OnFreeze = func(d time.Duration) {
		if d > freezeExpires {
			w.in.expire(p)
			w.out.expire(p)
		}
	}
	return p
}

// freezeExpires is how long a process may stand still before its source gives its messages to others.
const freezeExpires = 1500 * time.Millisecond

// crashed rolls back what the process had open, returns its messages to their sources, and starts a new process.
func (p *Process) crashed() {
	p.mu.Lock()
	open, stopped := p.open, p.stopped
	p.open = nil
	p.mu.Unlock()
	for _, tx := range open {
		tx.Lose()
	}
	p.of.in.lost(p)
	p.of.out.lost(p)
	p.cancel()
	if !stopped && !p.of.sim.Over() {
		p.restart()
	}
}

// stop ends the process's context, as a deployment does: it finishes what it must, and another process takes its place.
func (p *Process) stop() {
	p.mu.Lock()
	before := p.stopped
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
	if !before {
		p.restart()
	}
}

// stops reports whether the process receives nothing more.
func (p *Process) stops() bool { return p.ctx.Err() != nil }

// Name names the process in traces. A process that is started again has another name.
func (p *Process) Name() string { return p.sim.Name }

// Rand returns random numbers for settings. All processes of a case get the same ones.
func (p *Process) Rand() *rand.Rand { return p.of.s.rand(p.of.n, ofSettings) }

// Step is a boundary within a handler, for what it does between statements. After an error, the handler must return.
func (p *Process) Step(ctx context.Context, what string) error {
	switch p.sim.At("step", what).Action {
	case sim.Gone:
		return errCut
	case "crash":
		p.sim.Crash()
		return errCut
	case "delivery expires":
		p.of.in.expire(p)
		p.of.out.expire(p)
	}
	return ctx.Err()
}

// Backoff is a Config.Backoff that suits virtual time: its waits are short, and no two of them end together.
func (p *Process) Backoff(attempt int) time.Duration {
	return p.sim.Unlike(time.Duration(attempt) * 10 * time.Millisecond)
}

// begun and ended keep the transactions that the process has open.
func (p *Process) begun(tx *deduptest.Tx) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, tx)
}

func (p *Process) ended(tx *deduptest.Tx) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = slices.DeleteFunc(p.open, func(t *deduptest.Tx) bool { return t == tx })
}
