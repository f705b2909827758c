package dedup_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/dedup"
)

// The model below is a database with its clock, its rows and its windows, several nodes with windows that are raised and
// lowered, sweeps, and messages with skewed times that are delivered again and again. It knows what really happened, and
// compares it with what Horizon and Provable say. Everything is a multiple of one tick, so that equal times are common.
const tick = 10 * time.Minute

// rules are what stores do. Each may be broken, to see that it is needed.
type rules struct {
	horizon  func(forgotten time.Time, uses []dedup.WindowUse) time.Time
	provable func(t, horizon time.Time) bool
	expires  func(clock, t time.Time, window time.Duration) time.Time
	floor    time.Duration // the horizon is not asked for messages younger than this

	registersAfterClaim bool // the first claim under a window goes ahead of its registration
	registersOnce       bool // a node never registers again, and claims past UsedUntil
	newestWindowOnly    bool // a changed window replaces the one before
	forgetsEarliest     bool // a sweep records the earliest of what it forgot, and not the latest
	forgetsSilently     bool // a sweep records nothing
	anyFuture           bool // times further ahead than MaxAhead are accepted
}

var asBuilt = rules{
	horizon:  dedup.Horizon,
	provable: dedup.Provable,
	expires: func(clock, t time.Time, window time.Duration) time.Time {
		if t.After(clock) {
			return t.Add(window)
		}
		return clock.Add(window)
	},
	floor: dedup.MinWindow,
}

type world struct {
	rules
	draw func(what string, n int) int // in [0, n)

	clock     time.Time
	forgotten time.Time
	rows      map[int]time.Time // message -> expires
	uses      map[time.Duration]dedup.WindowUse
	nodes     [3]modelNode
	messages  []modelMessage
	seen      map[dedup.Verdict]int
}

type modelNode struct {
	window time.Duration
	until  map[time.Duration]time.Time // as the node remembers UsedUntil
}

type modelMessage struct {
	time    time.Time
	claimed []claimedUnder // what really happened
}

type claimedUnder struct {
	clock  time.Time
	window time.Duration
}

func newWorld(r rules, draw func(string, int) int) *world {
	w := &world{
		rules: r, draw: draw,
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		rows:  map[int]time.Time{}, uses: map[time.Duration]dedup.WindowUse{}, seen: map[dedup.Verdict]int{},
	}
	for i := range w.nodes {
		w.nodes[i] = modelNode{w.someWindow(), map[time.Duration]time.Time{}}
	}
	return w
}

func (w *world) someWindow() time.Duration {
	return []time.Duration{dedup.MinWindow, 2 * time.Hour, 3 * time.Hour, 8 * time.Hour, 30 * time.Hour}[w.draw("window", 5)]
}

// some is a duration up to most, more often a short one.
func (w *world) some(what string, most time.Duration) time.Duration {
	if w.draw(what+" short", 3) > 0 {
		most = min(most, 10*tick)
	}
	return time.Duration(w.draw(what, int(most/tick)+1)) * tick
}

// step lets something happen, and returns what it contradicts.
func (w *world) step() error {
	switch op := w.draw("op", 10); {
	case op < 2:
		w.clock = w.clock.Add(w.some("pass", 40*time.Hour))
	case op < 3:
		w.nodes[w.draw("node", len(w.nodes))].window = w.someWindow()
	case op < 5:
		w.sweep()
	case op < 6: // the keys of another consumer are forgotten in the same table
		w.forget(w.clock.Add(-w.some("foreign", 20*time.Hour)))
	case op < 8 || len(w.messages) == 0:
		at := w.clock.Add(dedup.MaxAhead)
		if w.anyFuture {
			at = at.Add(6 * tick)
		}
		w.messages = append(w.messages, modelMessage{time: at.Add(-w.some("age", 20*time.Hour))})
		return w.deliver(len(w.messages) - 1)
	default:
		return w.deliver(w.draw("message", len(w.messages)))
	}
	return nil
}

func (w *world) sweep() {
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		if expires := w.rows[id]; !expires.After(w.clock) && w.draw("spare", 4) > 0 {
			delete(w.rows, id)
			if !w.forgetsSilently {
				w.forget(expires)
			}
		}
	}
}

func (w *world) forget(expired time.Time) {
	if w.forgotten.IsZero() || expired.After(w.forgotten) != w.forgetsEarliest {
		w.forgotten = expired
	}
}

// register is what a node does before it claims, unless it did so and nothing says that it must again.
func (w *world) register(n *modelNode) {
	if until, ok := n.until[n.window]; ok && (w.registersOnce || !w.clock.After(until)) {
		return
	}
	u, ok := w.uses[n.window]
	if !ok {
		u = dedup.WindowUse{Window: n.window, FirstRun: w.clock}
		if w.registersAfterClaim {
			u.FirstRun = w.clock.Add(tick)
		}
	}
	u.UsedUntil = w.clock.Add(dedup.UseFor)
	if w.newestWindowOnly {
		clear(w.uses)
	}
	w.uses[n.window] = u
	n.until[n.window] = u.UsedUntil
}

func (w *world) deliver(id int) error {
	m, n := &w.messages[id], &w.nodes[w.draw("node", len(w.nodes))]
	if !w.anyFuture && m.time.Sub(w.clock) > dedup.MaxAhead {
		return nil // ErrFuture
	}
	w.register(n)
	if _, found := w.rows[id]; found {
		w.seen[dedup.Duplicate]++
		return nil
	}
	uses := slices.Collect(maps.Values(w.uses))
	young := w.clock.Before(m.time.Add(w.floor))
	if !young && !w.provable(m.time, w.horizon(w.forgotten, uses)) {
		w.seen[dedup.Unprovable]++
		return w.excused(m)
	}
	w.seen[dedup.First]++
	m.claimed = append(m.claimed, claimedUnder{w.clock, n.window})
	if len(m.claimed) > 1 {
		return fmt.Errorf("double: message of %v, claimed at %v under %v, is new at %v; forgotten until %v, windows %v",
			m.time, m.claimed[0].clock, m.claimed[0].window, w.clock, w.forgotten, uses)
	}
	w.rows[id] = w.expires(w.clock, m.time, n.window)
	return nil
}

// excused looks for a history in which m was claimed and forgotten: some moment and some window under which, by all that
// is recorded, its row may have existed and have expired. Without one, unprovable is wrong.
func (w *world) excused(m *modelMessage) error {
	for _, u := range w.uses {
		for c := u.FirstRun; !c.After(u.UsedUntil) && !c.After(w.clock); c = c.Add(tick) {
			if m.time.Sub(c) <= dedup.MaxAhead && !asBuilt.expires(c, m.time, u.Window).After(w.forgotten) {
				return nil
			}
		}
	}
	return fmt.Errorf("needless: message of %v is unprovable, but cannot have been forgotten; forgotten until %v, windows %v", m.time, w.forgotten, w.uses)
}

func TestHorizonModel(t *testing.T) {
	seen := map[dedup.Verdict]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(asBuilt, func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(rt, what) })
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			if err := w.step(); err != nil {
				rt.Fatal(err)
			}
		}
		for v, n := range w.seen {
			seen[v] += n
		}
	})
	t.Log(seen)
	for _, v := range []dedup.Verdict{dedup.First, dedup.Duplicate, dedup.Unprovable} {
		if seen[v] == 0 {
			t.Errorf("no message was %v: the model tried nothing", v)
		}
	}
}

// The same at length: what rapid finds it makes small, but it tries few histories.
func TestHorizonModelAtLength(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 10_000 {
		w := newWorld(asBuilt, func(_ string, n int) int { return random.IntN(n) })
		for range 120 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, history %d: %v", seed, n, err)
			}
		}
	}
}

// Each rule is needed: without it the model finds a key that was claimed twice, or a message refused that need not be.
func TestHorizonModelFindsBrokenRules(t *testing.T) {
	broken := func(change func(*rules)) rules {
		r := asBuilt
		change(&r)
		return r
	}
	// horizonWith is dedup.Horizon with its three conditions exchanged.
	horizonWith := func(skip func(time.Time, dedup.WindowUse) bool, last func(dedup.WindowUse) time.Time) func(time.Time, []dedup.WindowUse) time.Time {
		return func(forgotten time.Time, uses []dedup.WindowUse) (horizon time.Time) {
			for _, u := range uses {
				if skip(forgotten, u) {
					continue
				}
				h := forgotten.Add(-u.Window)
				if l := last(u); l.Before(h) {
					h = l
				}
				if h.After(horizon) {
					horizon = h
				}
			}
			return horizon
		}
	}
	young := func(forgotten time.Time, u dedup.WindowUse) bool { return forgotten.Before(u.FirstRun.Add(u.Window)) }
	last := func(u dedup.WindowUse) time.Time { return u.UsedUntil.Add(dedup.MaxAhead) }

	for _, test := range []struct {
		name  string
		rules rules
		finds string
	}{
		{"no allowance for clocks ahead", broken(func(r *rules) {
			r.horizon = horizonWith(young, func(u dedup.WindowUse) time.Time { return u.UsedUntil })
		}), "double"},
		{"times further ahead than that accepted", broken(func(r *rules) { r.anyFuture = true }), "double"},
		{"claims past UsedUntil", broken(func(r *rules) { r.registersOnce = true }), "double"},
		{"claims before FirstRun", broken(func(r *rules) { r.registersAfterClaim = true }), "double"},
		{"only the newest window counts", broken(func(r *rules) { r.newestWindowOnly = true }), "double"},
		{"a message as old as the horizon is new", broken(func(r *rules) {
			r.provable = func(t, horizon time.Time) bool { return horizon.IsZero() || !t.Before(horizon) }
		}), "double"},
		{"a row that expires just as FirstRun says is left out", broken(func(r *rules) {
			r.horizon = horizonWith(func(forgotten time.Time, u dedup.WindowUse) bool {
				return !forgotten.After(u.FirstRun.Add(u.Window))
			}, last)
		}), "double"},
		{"expires_at counts from the claim alone", broken(func(r *rules) {
			r.expires = func(clock, _ time.Time, window time.Duration) time.Time { return clock.Add(window) }
		}), "double"},
		{"a sweep records the earliest of what it forgot", broken(func(r *rules) { r.forgetsEarliest = true }), "double"},
		{"the horizon is not asked for messages older than the floor", broken(func(r *rules) { r.floor = 2 * dedup.MinWindow }), "double"},
		{"a sweep records nothing", broken(func(r *rules) { r.forgetsSilently = true }), "double"},
		{"the horizon is that of the longest window", broken(func(r *rules) {
			r.horizon = func(forgotten time.Time, uses []dedup.WindowUse) time.Time {
				return dedup.Horizon(forgotten, []dedup.WindowUse{slices.MaxFunc(uses, func(a, b dedup.WindowUse) int { return int(a.Window - b.Window) })})
			}
		}), "double"},
		{"a window out of use counts for ever", broken(func(r *rules) {
			r.horizon = horizonWith(young, func(dedup.WindowUse) time.Time { return time.Unix(1<<40, 0) })
		}), "needless"},
		{"a window counts from before its first run", broken(func(r *rules) {
			r.horizon = horizonWith(func(time.Time, dedup.WindowUse) bool { return false }, last)
		}), "needless"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			for n := range 20_000 {
				w := newWorld(test.rules, func(_ string, n int) int { return random.IntN(n) })
				for range 120 {
					err := w.step()
					if err == nil {
						continue
					}
					if got := err.Error()[:len(test.finds)]; got != test.finds {
						break // another consequence; look for the one that matters
					}
					t.Logf("history %d: %v", n, err)
					return
				}
			}
			t.Errorf("no %s found: the model cannot tell that this rule is broken", test.finds)
		})
	}
}

func TestHorizon(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	use := func(window, first, until int) dedup.WindowUse {
		return dedup.WindowUse{Window: time.Duration(window) * time.Hour, FirstRun: at(first), UsedUntil: at(until)}
	}
	for _, test := range []struct {
		name      string
		forgotten time.Time
		uses      []dedup.WindowUse
		want      time.Time
	}{
		{"nothing was forgotten", time.Time{}, []dedup.WindowUse{use(10, 0, 100)}, time.Time{}},
		{"no windows", at(50), nil, time.Time{}},
		{"one window", at(50), []dedup.WindowUse{use(10, 0, 100)}, at(40)},
		{"too young to have forgotten", at(50), []dedup.WindowUse{use(51, 0, 100)}, time.Time{}},
		{"just old enough", at(50), []dedup.WindowUse{use(50, 0, 100)}, at(0)},
		{"the shortest window decides", at(50), []dedup.WindowUse{use(30, 0, 100), use(10, 0, 100), use(20, 0, 100)}, at(40)},
		{"unless it is out of use", at(50), []dedup.WindowUse{use(30, 0, 100), use(10, 0, 15)}, at(20)},
		{"out of use, with clocks ahead", at(50), []dedup.WindowUse{use(10, 0, 15)}, at(16)},
		{"unless it is new", at(50), []dedup.WindowUse{use(30, 0, 100), use(10, 41, 100)}, at(20)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := dedup.Horizon(test.forgotten, test.uses); !got.Equal(test.want) {
				t.Errorf("Horizon = %v, want %v", got, test.want)
			}
		})
	}
}

func TestProvable(t *testing.T) {
	horizon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name       string
		t, horizon time.Time
		want       bool
	}{
		{"younger", horizon.Add(1), horizon, true},
		{"as old", horizon, horizon, false},
		{"older", horizon.Add(-1), horizon, false},
		{"without a time", time.Time{}, horizon, true},
		{"nothing can have been forgotten", horizon.Add(-1000 * time.Hour), time.Time{}, true},
		{"another zone", horizon.Add(1).In(time.FixedZone("", 3600)), horizon, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := dedup.Provable(test.t, test.horizon); got != test.want {
				t.Errorf("Provable(%v, %v) = %v, want %v", test.t, test.horizon, got, test.want)
			}
		})
	}
}
