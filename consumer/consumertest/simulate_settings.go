package consumertest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

var errNoMessages = errors.New("consumertest: Simulation.Messages has returned none: there is nothing to test")

// simulating keeps two simulations from running at once.
var simulating sync.Mutex

// exclusively waits for other simulations, and lets the program use one processor only until release: what a case does
// must depend on nothing else.
func exclusively() (release func()) {
	simulating.Lock()
	processors := runtime.GOMAXPROCS(0)
	if processors > 1 {
		runtime.GOMAXPROCS(1)
	}
	return func() {
		if processors > 1 {
			runtime.GOMAXPROCS(processors)
		}
		simulating.Unlock()
	}
}

// withEnvironment returns s with its defaults and what the environment replaces.
func (s Simulation) withEnvironment() (Simulation, error) {
	s = s.withDefaults()
	for name, set := range map[string]func(n uint64){
		"SEED":  func(n uint64) { s.Seed = n },
		"FROM":  func(n uint64) { s.From = int(n) },
		"CASES": func(n uint64) { s.Cases = int(n) },
	} {
		text, found := os.LookupEnv(name)
		if !found || text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 62)
		switch {
		case err != nil:
			return s, fmt.Errorf("consumertest: the environment's %s: %w", name, err)
		case n == 0 && name == "CASES":
			return s, errors.New("consumertest: the environment's CASES is 0, so no case would run: want 1 or more")
		}
		set(n)
	}
	return s, nil
}

func (s Simulation) withDefaults() Simulation {
	s.Processes, s.Cases, s.Seed = cmp.Or(s.Processes, 2), cmp.Or(s.Cases, 1000), cmp.Or(s.Seed, 1)
	return s
}

// Streams of random numbers of a case.
const (
	ofSetup = iota
	ofOrder
	ofFaults
	ofSettings
)

func (s *Simulation) rand(n, stream int) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed, uint64(n)<<2|uint64(stream)))
}

// setup is the shape of a case.
type setup struct {
	messages  []int // of those that Simulation.Messages returns, which are used
	processes int
	relays    int
	lanes     int // calls at once, of each process
	most      int // messages of a batch
	alone     bool
	budget    int // faults
	replays   int // of dead letters, by an operator
}

// setup draws the shape of a case with so many messages.
func (s *Simulation) setup(r *rand.Rand, messages int) setup {
	of := setup{
		processes: 1 + r.IntN(s.Processes), lanes: 1 + r.IntN(2), most: 1 + r.IntN(3), alone: r.IntN(2) == 0,
		budget: 1 + r.IntN(5),
	}
	if r.IntN(3) == 0 {
		of.budget = 6 + r.IntN(7)
	}
	if r.IntN(3) == 0 {
		of.replays = 1 + r.IntN(3)
	}
	if s.Relays > 0 {
		of.relays = 1 + r.IntN(s.Relays)
	}
	for i := range messages {
		of.messages = append(of.messages, i)
	}
	return of
}

func (of setup) String() string {
	how := fmt.Sprintf("batches of %d", of.most)
	if of.alone {
		how = "one message at a time"
	}
	return fmt.Sprintf("%s, %s with %s, %s, %s, %s", count(len(of.messages), "message"), count(of.processes, "process"),
		count(of.lanes, "lane"), how, count(of.relays, "relay"), count(of.replays, "replay"))
}

func count(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}
