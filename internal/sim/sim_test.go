package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/internal/sim"
)

var menu = map[string]sim.Choice{"work": sim.OneIn(6, "fails", "stall", "crash", sim.Freeze)}

// counter is a program of some processes that each do some work. It breaks a rule when a piece fails twice in a row.
type counter struct {
	w    *sim.World
	done int
}

func (c *counter) process(pieces int) {
	p := c.w.NewProcess("worker")
	p.OnCrash = func() { c.process(pieces) }
	c.w.Go(func() {
		for ; pieces > 0; pieces-- {
			failures := 0
			for again := true; again; {
				switch p.At("work", fmt.Sprint("piece ", pieces)).Action {
				case sim.Gone:
					return
				case "crash":
					p.Crash()
					return
				case "fails":
					if failures++; failures == 2 {
						c.w.Break("piece %d has failed twice", pieces)
					}
				default:
					again = false
				}
			}
			if p.At("done", "").Action == sim.Gone {
				return
			}
			c.done++
		}
	})
}

func run(t *testing.T, n uint64, plan *sim.Plan, trace *sim.Trace) (c *counter, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c = &counter{w: sim.NewWorld(rand.New(rand.NewPCG(n, 1)), plan, menu)}
		c.w.Trace = trace
		for range 3 {
			c.process(4)
		}
		err = c.w.Run(func() bool { return c.done >= 12 })
		c.w.End(func() {})
		if broken := c.w.Broken(); broken != nil {
			err = broken
		}
	})
	return c, err
}

func drawn(n uint64) *sim.Plan { return sim.Drawn(rand.New(rand.NewPCG(n, 2)), 6) }

// The same numbers are the same run, and so is the list of the faults that it had.
func TestARunCanBeRepeated(t *testing.T) {
	different := map[string]bool{}
	for n := range uint64(50) {
		var first, second, listed sim.Trace
		plan := drawn(n)
		run(t, n, plan, &first)
		run(t, n, drawn(n), &second)
		run(t, n, sim.Listed(plan.Fired, plan.Spare()), &listed)
		if diff := cmp.Diff(first.Lines(), second.Lines()); diff != "" {
			t.Errorf("run %d again: %s", n, diff)
		}
		if diff := cmp.Diff(first.Lines(), listed.Lines()); diff != "" {
			t.Errorf("run %d with its faults as a list: %s", n, diff)
		}
		different[strings.Join(first.Lines(), "\n")] = true
	}
	if len(different) < 45 {
		t.Errorf("%d different runs of 50", len(different))
	}
}

// A rule that is broken ends the run, and Shrink leaves only the faults that break it.
func TestShrinkLeavesWhatBreaksTheRule(t *testing.T) {
	found := 0
	for n := range uint64(300) {
		plan := drawn(n)
		_, err := run(t, n, plan, nil)
		if err == nil {
			continue
		}
		found++
		few := sim.Shrink(plan.Fired, 100, func(rest []sim.Fault) bool {
			_, err := run(t, n, sim.Listed(rest, 0), nil)
			return err != nil
		})
		last := few[max(0, len(few)-2):]
		if len(last) != 2 || last[0].Action != "fails" || last[1].Action != "fails" || last[0].About != last[1].About {
			t.Errorf("run %d fails by %v, which became %v", n, plan.Fired, few)
		}
		for i := range few {
			rest := slices.Delete(slices.Clone(few), i, i+1)
			if _, err := run(t, n, sim.Listed(rest, 0), nil); err != nil {
				t.Errorf("run %d fails by %v, and also without the fault %d: %v", n, few, i, err)
			}
		}
	}
	if found == 0 {
		t.Error("no run breaks the rule")
	}
}

// A process that stands still does nothing, whatever its timers do, and goes on afterwards.
func TestAFrozenProcessDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld(rand.New(rand.NewPCG(1, 1)), sim.Listed([]sim.Fault{{
			Boundary: "work", About: "a", Nth: 2, Action: sim.Freeze, For: 5 * time.Second,
		}}, 0), menu)
		p := w.NewProcess("worker")
		var at []time.Duration
		began := time.Now()
		for _, about := range []string{"a", "b"} {
			w.Go(func() {
				for range 3 {
					if p.At("work", about).Action == sim.Gone {
						return
					}
					at = append(at, time.Since(began))
					<-time.After(p.Unlike(100 * time.Millisecond))
				}
			})
		}
		if err := w.Run(func() bool { return len(at) == 6 }); err != nil {
			t.Error(err)
		}
		w.End(func() {})
		slices.Sort(at)
		if gap := at[len(at)-1] - at[0]; gap < 5*time.Second {
			t.Errorf("it went on after %v: %v", gap, at)
		}
		for _, when := range at {
			if when > 300*time.Millisecond && when < 5*time.Second {
				t.Errorf("it did something at %v while it stood still: %v", when, at)
			}
		}
	})
}

// A process that is told to stop goes on with what it does.
func TestAProcessIsToldToStopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld(rand.New(rand.NewPCG(1, 1)), sim.Listed([]sim.Fault{{
			Boundary: "work", Nth: 2, Action: sim.Stop,
		}}, 0), menu)
		p := w.NewProcess("worker")
		told, went := 0, 0
		p.OnStop = func() { told++ }
		w.Go(func() {
			for range 3 {
				if p.At("work", "").Action == "" {
					went++
				}
			}
		})
		if err := w.Run(func() bool { return went == 3 }); err != nil {
			t.Error(err)
		}
		w.End(func() {})
		if told != 1 {
			t.Errorf("it was told %d times, want once", told)
		}
	})
}

// A run is at rest only when nobody is going to go on with something.
func TestARunIsBusyWhileAProcessStandsStill(t *testing.T) {
	for _, action := range []string{"stall", sim.Freeze} {
		synctest.Test(t, func(t *testing.T) {
			w := sim.NewWorld(rand.New(rand.NewPCG(1, 1)), sim.Listed([]sim.Fault{{
				Boundary: "work", Nth: 1, Action: action, For: 5 * time.Second,
			}}, 0), menu)
			began := time.Now()
			for _, boundary := range []string{"work", "idle"} {
				p := w.NewProcess("worker")
				w.Go(func() { p.When(boundary, "", func() bool { return boundary == "work" }) })
			}
			if err := w.Run(func() bool { return !w.Busy("idle") }); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < 5*time.Second {
				t.Errorf("%s: at rest after %v", action, took)
			}
			w.End(func() {})
		})
	}
}

func TestARunThatDoesNotEndIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld(rand.New(rand.NewPCG(1, 1)), sim.Listed(nil, 0), nil)
		w.NewProcess("worker")
		if err := w.Run(func() bool { return false }); err == nil || !strings.Contains(err.Error(), "rest") {
			t.Errorf("error %v", err)
		}
		w.End(func() {})
	})
}

func TestUnlikeWaitsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld(rand.New(rand.NewPCG(1, 1)), sim.Listed(nil, 0), nil)
		seen := map[time.Duration]bool{}
		for range 20 {
			p := w.NewProcess("worker")
			for range 20 {
				seen[p.Unlike(time.Second)] = true
			}
		}
		if len(seen) != 400 {
			t.Errorf("%d different waits of 400", len(seen))
		}
	})
}

func TestTraceFindsTheHistoryOfAMessage(t *testing.T) {
	var trace sim.Trace
	run(t, 1, drawn(1), &trace)
	about := trace.About("4")
	if len(about) == 0 || len(about) >= len(trace.Lines()) {
		t.Errorf("%d of %d lines are about piece 4", len(about), len(trace.Lines()))
	}
	for _, line := range about {
		if !strings.Contains(line, "4") {
			t.Errorf("not about piece 4: %s", line)
		}
	}
}
