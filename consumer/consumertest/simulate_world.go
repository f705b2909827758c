package consumertest

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/sim"
	"github.com/txonce/txonce/outbox"
)

// World is a case of a Simulation, for its Check.
type World struct{ w *world }

// Database returns the database that all processes share.
func (w *World) Database() *deduptest.Database { return w.w.db }

// Published returns what has arrived at the broker that the relays publish to, with every repeat.
func (w *World) Published() []outbox.Message {
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	return slices.Clone(w.w.published)
}

// Letters returns the dead letters of all consumers.
func (w *World) Letters() (found []consumer.DeadLetter) {
	all := w.w.db.Values(letters)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		found = append(found, all[name].(consumer.DeadLetter))
	}
	return found
}

// Rand returns what Process.Rand returned in the processes of the case.
func (w *World) Rand() *rand.Rand { return w.w.s.rand(w.w.n, ofSettings) }

// Delivered returns the messages that the source had, each delivery once.
func (w *World) Delivered() []consumer.Message { return slices.Clone(w.w.messages) }

// Roles of processes.
const (
	roleFirst = "consumer"
	roleNext  = "next consumer"
	roleRelay = "relay"
)

// world is a case.
type world struct {
	setup
	s      *Simulation
	n      int
	sim    *sim.World
	ctx    context.Context
	cancel context.CancelFunc

	db           *deduptest.Database
	in, out      *source
	messages     []consumer.Message
	transactions sync.Map // *transaction by *deduptest.Tx

	left      atomic.Int64 // replays
	working   atomic.Int64 // batches and replays that consumers have, and requests that are under way
	mu        sync.Mutex
	known     map[known]consumer.Message // acknowledged
	keys      map[string]dedup.Key       // by position
	arrived   map[string]int             // by message ID
	latest    map[string]int64           // sequence number by ordering key
	order     map[dedup.Key]int          // of the commits that claimed a key
	parked    map[dedup.Key]bool         // once
	dropped   map[dedup.Key]bool         // discarded
	published []outbox.Message
	shared    any // see Process.Shared
	found     int // effects at rest
}

type known struct {
	role string
	key  dedup.Key
}

// result is what became of a case.
type result struct {
	err      error
	fired    []sim.Fault
	spare    int
	setup    setup
	trace    *sim.Trace
	messages []consumer.Message
	effects  int // at rest
}

// run runs case n. shape changes its setup; plan is nil for the plan that the seed draws.
func (s *Simulation) run(t *testing.T, n int, shape func(*setup), plan *sim.Plan, trace *sim.Trace) (r result) {
	t.Helper()
	var draws atomic.Int64
	restore := backoff.Replace(func(most time.Duration) time.Duration { // no two waits end together
		return (most/2 + time.Duration(draws.Add(1)*103)) % most
	})
	defer restore()
	synctest.Test(t, func(*testing.T) { r = s.bubble(n, shape, plan, trace) })
	return r
}

// bubble is run within a bubble.
func (s *Simulation) bubble(n int, shape func(*setup), plan *sim.Plan, trace *sim.Trace) result {
	random := s.rand(n, ofSetup)
	messages := s.Messages(random)
	w := &world{
		s: s, n: n, setup: s.setup(random, len(messages)), db: deduptest.NewDatabase(),
		in: &source{name: "in"}, out: &source{name: "out"},
		known: map[known]consumer.Message{}, keys: map[string]dedup.Key{},
		arrived: map[string]int{}, latest: map[string]int64{}, order: map[dedup.Key]int{},
		parked: map[dedup.Key]bool{}, dropped: map[dedup.Key]bool{},
	}
	if shape != nil {
		shape(&w.setup)
	}
	if plan == nil {
		plan = sim.Drawn(s.rand(n, ofFaults), w.budget)
	}
	w.sim = sim.NewWorld(s.rand(n, ofOrder), plan, menu)
	w.sim.Trace = trace
	w.ctx, w.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // a bubble is a program of its own
	w.db.Outbox().Shards = 2
	for _, i := range w.setup.messages {
		w.messages = append(w.messages, messages[i])
		w.in.add(messages[i])
	}
	w.left.Store(int64(w.replays))
	err := errNoMessages
	if len(messages) > 0 {
		err = w.play()
	}
	return result{
		err: err, fired: plan.Fired, spare: plan.Spare(), setup: w.setup, trace: trace, messages: w.messages,
		effects: w.found,
	}
}

// play starts the processes, and checks the rules.
func (w *world) play() error {
	for range w.processes {
		w.consume(w.in, roleFirst, w.s.New)
	}
	for range w.relays {
		w.relay()
	}
	if w.s.Next != nil {
		w.consume(w.out, roleNext, w.s.Next)
	}
	err := w.sim.Run(w.atRest)
	w.sim.End(w.cancel)
	if broken := w.sim.Broken(); broken != nil {
		return broken
	}
	if err != nil {
		return err
	}
	return w.checkRest()
}
