package kafka_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// This simulation has a group of members that read a partition and keep its position in a database, which goes back now
// and then, and loses what was committed since. What a session begins with is decided by the adapter's own function,
// and so are its writes and comparisons, the beats, the tracker of offsets and the last write; claims and effects are a
// consumer's own. sarama's session and the deliverer are written for the simulation.

// positionFaults has the faults of each boundary. "goes back" makes another server take over that lacks commits.
var positionFaults = map[string]sim.Choice{
	"begin session": sim.OneIn(10, "cut", "crash", "goes back", sim.Freeze),
	"claimed":       sim.OneIn(8, "cut", "crash", "goes back", sim.Freeze),
	"commit":        sim.OneIn(6, "lost", "answer lost", "crash before", "crash after", "goes back", sim.Freeze),
	"write":         sim.OneIn(6, "cut", "answer lost", "crash before", "crash after", "goes back", sim.Freeze),
	"compare":       sim.OneIn(3, "cut", "crash", "goes back", sim.Freeze),
	"commit offset": sim.OneIn(4, "lost", "crash before", "crash after", "goes back", sim.Freeze),
	"close":         sim.OneIn(2, "cut", "crash", "goes back"),
}

var errConnection = fmt.Errorf("%w: the connection was lost", deduptest.ErrDown)

// simGroup is the broker's side: a partition, and how far the group is.
type simGroup struct {
	w     *sim.World
	ctx   context.Context
	db    *deduptest.Database
	draws *rand.Rand
	log   []string // message IDs

	slow      string // the ID of a message that fails for a while, so that later ones are finished first; or ""
	slowUntil time.Time

	mu         sync.Mutex
	generation int
	owner      *sim.Process // nil: the partition is free
	committed  int64
	metadata   string
	standby    *deduptest.Snapshot // nil: the database cannot go back
	backs      int
	restores   int         // of these, those of a backup
	latest     time.Time   // when a transaction was committed last
	missed     time.Time   // since when a message is missing; zero: none is
	late       bool        // a member has begun a session of an earlier generation
	void       []sim.Fault // that could not do anything, and are not counted
}

// goBack makes the standby take over, or restores it as a backup. It returns false if there is none yet.
func (g *simGroup) goBack(by *sim.Process) bool {
	g.mu.Lock()
	s := g.standby
	g.mu.Unlock()
	if s == nil {
		return false
	}
	g.backs++
	if time.Since(g.latest) > shows {
		g.restores++
		by.Note("a backup is restored into the same server")
		g.db.Restore(s)
		return true
	}
	by.Note("another server takes over, which lacks the latest commits")
	g.db.Promote(s)
	return true
}

// shows is how long after a commit the rows of the positions certainly show that it was there, also when a comparison
// or two have failed. A backup that is restored into the same server sooner may not be noticed.
const shows = 20 * time.Second

// wentBack is called when a member says that the database went back. It may be wrong after a member that the group had
// left out began a session: that member moves the row to the group's offset, and another one commits a later offset.
// Then messages are only read again.
func (g *simGroup) wentBack(err error) {
	g.mu.Lock()
	late := g.late
	g.mu.Unlock()
	if g.backs == 0 && !late {
		g.w.Break("a member says that the database went back, which it has not: %v", err)
	}
}

// keep lets the standby have what is committed now, at a third of the calls.
func (g *simGroup) keep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draws.IntN(3) == 0 {
		g.standby = g.db.Snapshot()
	}
}

// leaves lets the group give the partition to another member.
func (g *simGroup) leaves(p *sim.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owner == p {
		g.owner = nil
	}
}

// offset commits an offset of a generation. It reports whether the group has taken it.
func (g *simGroup) offset(generation int, at int64, metadata string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if generation != g.generation {
		return false
	}
	g.committed, g.metadata = at, metadata
	return true
}

func (g *simGroup) effect(id string) int { return g.db.Count("effect of " + id) }

// atRest reports whether all messages have their effect, the group and the database know it, and no member is handling
// one again.
func (g *simGroup) atRest(store *consumertest.Store) bool {
	if g.db.Open() > 0 ||
		g.w.Busy("join", "begin session", "write", "compare", "commit offset", "close") {
		return false
	}
	g.mu.Lock()
	committed := g.committed
	g.mu.Unlock()
	rows, err := store.ListPositions(g.ctx, "billing")
	if err != nil || len(rows) != 1 || rows[0].Next != int64(len(g.log)) || committed != int64(len(g.log)) {
		return false
	}
	for _, id := range g.log {
		if g.effect(id) == 0 {
			g.lost(id)
			return false
		}
	}
	return true
}

// lost is called while the group and the database say that all is handled, and a message has no effect. A member must
// notice it soon: the database has just gone back.
func (g *simGroup) lost(id string) {
	switch {
	case g.missed.IsZero() || g.latest.After(g.missed):
		g.missed = time.Now()
	case time.Since(g.missed) > time.Minute:
		g.w.Break("%s has no effect, and the group and the database say that it is handled", id)
	}
}

// positionCase runs case n.
func positionCase(t *testing.T, seed, n uint64, trace *sim.Trace) (
	fired []sim.Fault, g *simGroup, err error,
) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n<<2|stream)) }
		shape := random(0)
		plan := sim.Drawn(random(2), 1+shape.IntN(8))
		ctx, cancel := context.WithCancel(context.Background())
		g = &simGroup{
			w: sim.NewWorld(random(1), plan, positionFaults), ctx: ctx, db: deduptest.NewDatabase(), draws: random(3),
			latest:    time.Now(),
			committed: -1,
		}
		g.w.Trace = trace
		for i := range 2 + shape.IntN(5) {
			g.log = append(g.log, fmt.Sprint("m", i))
		}
		if shape.IntN(3) == 0 {
			g.slow = g.log[shape.IntN(2)]
			g.slowUntil = time.Now().Add(time.Duration(1+shape.IntN(60)) * time.Second)
		}
		most := 1 + shape.IntN(3)
		for range 1 + shape.IntN(2) {
			g.start(most)
		}
		watch := consumertest.NewStoreOn(g.db)
		err = g.w.Run(func() bool {
			for _, id := range g.log {
				if g.effect(id) > 1 {
					g.w.Break("%s has %d effects", id, g.effect(id))
				}
			}
			return g.atRest(watch)
		})
		g.w.End(cancel)
		if broken := g.w.Broken(); broken != nil {
			err = broken
		}
		fired = slices.DeleteFunc(plan.Fired, func(f sim.Fault) bool { return slices.Contains(g.void, f) })
	})
	return fired, g, err
}

func caseNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Whatever a database loses, the group reads again: each message has one effect in the end. SEED, FROM, CASES, SECONDS,
// STRIDE and COUNTS of the environment mean what they mean to consumertest's TestSimulation.
func TestPositionsInASimulation(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that a case can be repeated
	seed, from, cases := caseNumber(t, "SEED", 1), caseNumber(t, "FROM", 0), caseNumber(t, "CASES", 500)
	within := time.Duration(caseNumber(t, "SECONDS", 0)) * time.Second
	counts, began := newPositionCounts(), time.Now()
	stride := caseNumber(t, "STRIDE", 1)
	for n := from; within == 0 && counts.Cases < cases || within > 0 && time.Since(began) < within; n += stride {
		fired, g, err := positionCase(t, uint64(seed), uint64(n), nil)
		counts.add(fired, g)
		if err == nil {
			continue
		}
		var trace sim.Trace
		fired, _, again := positionCase(t, uint64(seed), uint64(n), &trace)
		lines := trace.Lines()
		command := cmp.Or(os.Getenv("TXONCE_SIMULATION"), "go test -run '^"+t.Name()+"$'")
		t.Fatalf("%v (again: %v)\n\nSEED=%d FROM=%d CASES=1 %s\n\nfaults: %v\n\n%s", err, again, seed, n, command, fired,
			strings.Join(lines[:min(len(lines), 200)], "\n"))
	}
	t.Logf("%d cases, %d faults; the database went back %d times, to a backup at %d of them", counts.Cases, counts.faults,
		counts.backs, counts.restores)
	if counts.Cases > 100 && (counts.faults == 0 || counts.backs < counts.Cases/20 || counts.restores == 0) {
		t.Error("too little has failed: this has shown nothing")
	}
	if path := os.Getenv("COUNTS"); path != "" {
		counts.write(t, path)
	}
}

// positionCounts are counted as consumertest's are.
type positionCounts struct {
	Cases         int             `json:"cases"`
	Cells         []*positionCell `json:"cells"`
	faults, backs int
	restores      int
}

type positionCell struct {
	Boundary string `json:"boundary"`
	Action   string `json:"action"`
	Faults   int    `json:"faults"`
	Cases    int    `json:"cases"`
}

func newPositionCounts() *positionCounts {
	c := &positionCounts{}
	for _, boundary := range slices.Sorted(maps.Keys(positionFaults)) {
		for _, action := range positionFaults[boundary].Actions {
			c.Cells = append(c.Cells, &positionCell{Boundary: "positions: " + boundary, Action: action})
		}
	}
	return c
}

func (c *positionCounts) add(fired []sim.Fault, g *simGroup) {
	c.Cases, c.faults, c.backs = c.Cases+1, c.faults+len(fired), c.backs+g.backs
	c.restores += g.restores
	seen := map[*positionCell]bool{}
	for _, f := range fired {
		i := slices.IndexFunc(c.Cells, func(at *positionCell) bool {
			return at.Boundary == "positions: "+f.Boundary && at.Action == f.Action
		})
		at := c.Cells[i]
		if at.Faults++; !seen[at] {
			at.Cases++
		}
		seen[at] = true
	}
}

func (c *positionCounts) write(t *testing.T, path string) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
