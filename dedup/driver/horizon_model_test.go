package driver_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// The model below has a database with a clock, rows and windows; several nodes whose windows change; sweeps; and
// messages with skewed times that are delivered several times. It knows what really happened, and compares that with
// the results of Horizon and Provable. All times are multiples of one tick, so that equal times are common.
const tick = 10 * time.Minute

// rules are the rules that stores follow. A test may break each of them to show that it is needed.
type rules struct {
	horizon  func(forgotten time.Time, uses []driver.WindowUse) time.Time
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
	horizon:  driver.Horizon,
	provable: driver.Provable,
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
	uses      map[time.Duration]driver.WindowUse
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
		rows:  map[int]time.Time{}, uses: map[time.Duration]driver.WindowUse{}, seen: map[dedup.Verdict]int{},
	}
	for i := range w.nodes {
		w.nodes[i] = modelNode{w.someWindow(), map[time.Duration]time.Time{}}
	}
	return w
}

func (w *world) someWindow() time.Duration {
	return []time.Duration{
		dedup.MinWindow, 2 * time.Hour, 3 * time.Hour, 8 * time.Hour,
		30 * time.Hour,
	}[w.draw("window", 5)]
}

// some is a duration up to most, more often a short one.
func (w *world) some(what string, most time.Duration) time.Duration {
	if w.draw(what+" short", 3) > 0 {
		most = min(most, 10*tick)
	}
	return time.Duration(w.draw(what, int(most/tick)+1)) * tick
}

// step makes something happen, and returns what contradicts the results.
func (w *world) step() error {
	switch op := w.draw("op", 10); {
	case op < 2:
		w.pass()
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

// pass lets time pass, often exactly until a window's last use or until a row expires.
func (w *world) pass() {
	var edges []time.Time
	for _, window := range slices.Sorted(maps.Keys(w.uses)) {
		edges = append(edges, w.uses[window].UsedUntil)
	}
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		edges = append(edges, w.rows[id])
	}
	edges = slices.DeleteFunc(edges, func(e time.Time) bool { return !e.After(w.clock) })
	if len(edges) == 0 || w.draw("edge", 3) == 0 {
		w.clock = w.clock.Add(w.some("pass", 40*time.Hour))
		return
	}
	w.clock = edges[w.draw("which edge", len(edges))]
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

// register registers a node's window before a claim, unless its last registration is still valid.
func (w *world) register(n *modelNode) {
	if until, ok := n.until[n.window]; ok && (w.registersOnce || !w.clock.After(until)) {
		return
	}
	u, ok := w.uses[n.window]
	if !ok {
		u = driver.WindowUse{Window: n.window, FirstRun: w.clock}
		if w.registersAfterClaim {
			u.FirstRun = w.clock.Add(tick)
		}
	}
	u.UsedUntil = w.clock.Add(driver.UseFor)
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

// excused looks for a history, consistent with all records, that claimed m and deleted its row. If there is none, m
// must not be unprovable.
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
