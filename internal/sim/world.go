package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// World is one run. Make it with NewWorld inside a bubble of testing/synctest.
type World struct {
	Plan  *Plan
	Menu  map[string]Choice // by boundary
	Trace *Trace            // nil: none is kept
	Steps int

	order  *rand.Rand
	began  time.Time
	mu     sync.Mutex
	parked []*parking
	stalls int // goroutines that stand still by a fault
	visits map[[2]string]int
	made   int
	over   bool
	broken []string
	live   sync.WaitGroup
}

// parking is a goroutine that waits at a boundary.
type parking struct {
	by              *Process
	boundary, about string
	ready           func() bool // nil: always
	wake            chan Fault
}

// NewWorld returns a World whose order is drawn from order.
func NewWorld(order *rand.Rand, plan *Plan, menu map[string]Choice) *World {
	return &World{Plan: plan, Menu: menu, order: order, began: time.Now(), visits: map[[2]string]int{}}
}

// Limits of a run.
const (
	mostSteps = 30_000
	pauses    = 12 // one of so many steps lets time pass instead, while a fault may come
	longest   = 600 * time.Millisecond
)

// Run schedules until done reports true, which is asked while all goroutines stand still, or a rule is broken. It
// returns an error when the run does not end.
func (w *World) Run(done func() bool) error {
	for idle := time.Millisecond; ; {
		w.sleep(1) // so that timers that begin in different steps do not end together
		synctest.Wait()
		if w.Failed() || done() {
			return nil
		}
		if w.Steps++; w.Steps > mostSteps {
			return fmt.Errorf("the case does not come to rest within %d steps", mostSteps)
		}
		p, pause := w.choose()
		switch {
		case p != nil:
			idle = time.Millisecond
			w.wake(p)
		case pause > 0: // the others are slow
			w.sleep(pause)
		default: // they all sleep or wait
			w.sleep(idle)
			idle = min(2*idle, time.Second)
		}
	}
}

// choose takes one of the goroutines that may go on, or says how long none of them does.
func (w *World) choose() (chosen *parking, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.parked, (*parking).compare)
	now := time.Now()
	var can []*parking
	for _, p := range w.parked {
		if !now.Before(p.by.frozen) && (p.ready == nil || p.ready()) {
			can = append(can, p)
		}
	}
	switch {
	case len(can) == 0:
		return nil, 0
	case w.Plan.Spare() > 0 && w.order.IntN(pauses) == 0:
		return nil, 1 + time.Duration(w.order.Int64N(int64(longest)))
	}
	return can[w.order.IntN(len(can))], 0
}

func (p *parking) compare(q *parking) int {
	if p.by != q.by {
		return p.by.number - q.by.number
	}
	if c := strings.Compare(p.boundary, q.boundary); c != 0 {
		return c
	}
	return strings.Compare(p.about, q.about)
}

// wake lets p go on with what the plan says, or freezes or stops its process.
func (w *World) wake(p *parking) {
	w.mu.Lock()
	at := [2]string{p.boundary, p.about}
	w.visits[at]++
	f := w.Plan.next(p.boundary, p.about, w.visits[at], w.Menu[p.boundary])
	if f.Action == Freeze {
		p.by.frozen = time.Now().Add(f.For)
		w.mu.Unlock()
		w.Trace.step(w, p, fmt.Sprintf("the whole process stands still for %v", f.For.Round(time.Millisecond)))
		if p.by.OnFreeze != nil {
			p.by.OnFreeze(f.For)
		}
		return
	}
	if f.Action == Stop {
		w.mu.Unlock()
		w.Trace.step(w, p, "the process is told to stop")
		if p.by.OnStop != nil {
			p.by.OnStop()
		}
		return
	}
	w.parked = slices.DeleteFunc(w.parked, func(q *parking) bool { return q == p })
	w.mu.Unlock()
	w.Trace.step(w, p, f.Action)
	p.wake <- f
}

// sleep lets d pass.
func (w *World) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// Break records that a rule is broken, which ends the run.
func (w *World) Break(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// Failed reports whether a rule is broken.
func (w *World) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken) > 0
}

// Broken returns the rules that are broken, as one error or nil.
func (w *World) Broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.broken) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(w.broken, "; "))
}

// Busy reports whether a goroutine is parked at a boundary other than idle, or stands still by a fault.
func (w *World) Busy(idle ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalls > 0 ||
		slices.ContainsFunc(w.parked, func(p *parking) bool { return !slices.Contains(idle, p.boundary) })
}

// stalled counts goroutines that stand still by a fault.
func (w *World) stalled(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalls += n
}

// Over reports whether End was called.
func (w *World) Over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// Go runs f, which End waits for.
func (w *World) Go(f func()) { w.live.Go(f) }

// End lets all goroutines go on without faults, after cancel has told them to stop, and waits for them. Then it waits
// for what they left behind.
func (w *World) End(cancel func()) {
	w.mu.Lock()
	w.over = true
	parked := w.parked
	w.parked = nil
	w.mu.Unlock()
	cancel()
	for _, p := range parked {
		p.wake <- Fault{Action: Gone}
	}
	w.live.Wait()
	w.sleep(time.Minute)
}
