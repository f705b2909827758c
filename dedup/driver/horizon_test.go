package driver_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

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

// The same with many histories. rapid tries few, but shrinks what it finds.
func TestHorizonModelAtLength(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	for n := 0; n < 10_000 && time.Since(began) < 3*time.Second; n++ {
		w := newWorld(asBuilt, func(_ string, n int) int { return random.IntN(n) })
		for range 120 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, history %d: %v", seed, n, err)
			}
		}
	}
}

// Each rule is needed: without it the model finds a key that was claimed twice, or a message that was refused without
// need.
func TestHorizonModelFindsBrokenRules(t *testing.T) {
	broken := func(change func(*rules)) rules {
		r := asBuilt
		change(&r)
		return r
	}
	// horizonWith is driver.Horizon with other conditions.
	horizonWith := func(skip func(time.Time, driver.WindowUse) bool,
		last func(driver.WindowUse) time.Time,
	) func(time.Time, []driver.WindowUse) time.Time {
		return func(forgotten time.Time, uses []driver.WindowUse) (horizon time.Time) {
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
	young := func(forgotten time.Time, u driver.WindowUse) bool {
		return forgotten.Before(u.FirstRun.Add(u.Window))
	}
	last := func(u driver.WindowUse) time.Time { return u.UsedUntil.Add(dedup.MaxAhead) }

	for _, test := range []struct {
		name  string
		rules rules
		finds string
	}{
		{"no allowance for clocks ahead", broken(func(r *rules) {
			r.horizon = horizonWith(young, func(u driver.WindowUse) time.Time { return u.UsedUntil })
		}), "double"},
		{"times further ahead than that accepted", broken(func(r *rules) { r.anyFuture = true }), "double"},
		{"claims past UsedUntil", broken(func(r *rules) { r.registersOnce = true }), "double"},
		{"claims before FirstRun", broken(func(r *rules) { r.registersAfterClaim = true }), "double"},
		{"only the newest window counts", broken(func(r *rules) { r.newestWindowOnly = true }), "double"},
		{"a message as old as the horizon is new", broken(func(r *rules) {
			r.provable = func(t, horizon time.Time) bool { return horizon.IsZero() || !t.Before(horizon) }
		}), "double"},
		{"a row that expires just as FirstRun says is left out", broken(func(r *rules) {
			r.horizon = horizonWith(func(forgotten time.Time, u driver.WindowUse) bool {
				return !forgotten.After(u.FirstRun.Add(u.Window))
			}, last)
		}), "double"},
		{"expires_at counts from the claim alone", broken(func(r *rules) {
			r.expires = func(clock, _ time.Time, window time.Duration) time.Time { return clock.Add(window) }
		}), "double"},
		{
			"a sweep records the earliest of what it forgot", broken(func(r *rules) { r.forgetsEarliest = true }),
			"double",
		},
		{
			"the horizon is not asked for messages older than the floor",
			broken(func(r *rules) { r.floor = 2 * dedup.MinWindow }), "double",
		},
		{"a sweep records nothing", broken(func(r *rules) { r.forgetsSilently = true }), "double"},
		{"the horizon is that of the longest window", broken(func(r *rules) {
			r.horizon = func(forgotten time.Time, uses []driver.WindowUse) time.Time {
				return driver.Horizon(forgotten, []driver.WindowUse{slices.MaxFunc(uses, func(a, b driver.WindowUse) int { return int(a.Window - b.Window) })})
			}
		}), "double"},
		{"a window out of use counts for ever", broken(func(r *rules) {
			r.horizon = horizonWith(young, func(driver.WindowUse) time.Time { return time.Unix(1<<40, 0) })
		}), "needless"},
		{"a window counts from before its first run", broken(func(r *rules) {
			r.horizon = horizonWith(func(time.Time, driver.WindowUse) bool { return false }, last)
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
	use := func(window, first, until int) driver.WindowUse {
		return driver.WindowUse{Window: time.Duration(window) * time.Hour, FirstRun: at(first), UsedUntil: at(until)}
	}
	for _, test := range []struct {
		name      string
		forgotten time.Time
		uses      []driver.WindowUse
		want      time.Time
	}{
		{"nothing was forgotten", time.Time{}, []driver.WindowUse{use(10, 0, 100)}, time.Time{}},
		{"no windows", at(50), nil, time.Time{}},
		{"one window", at(50), []driver.WindowUse{use(10, 0, 100)}, at(40)},
		{"too young to have forgotten", at(50), []driver.WindowUse{use(51, 0, 100)}, time.Time{}},
		{"just old enough", at(50), []driver.WindowUse{use(50, 0, 100)}, at(0)},
		{
			"the shortest window decides", at(50),
			[]driver.WindowUse{use(30, 0, 100), use(10, 0, 100), use(20, 0, 100)},
			at(40),
		},
		{"unless it is out of use", at(50), []driver.WindowUse{use(30, 0, 100), use(10, 0, 15)}, at(20)},
		{"out of use, with clocks ahead", at(50), []driver.WindowUse{use(10, 0, 15)}, at(16)},
		{"unless it is new", at(50), []driver.WindowUse{use(30, 0, 100), use(10, 41, 100)}, at(20)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := driver.Horizon(test.forgotten, test.uses); !got.Equal(test.want) {
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
			if got := driver.Provable(test.t, test.horizon); got != test.want {
				t.Errorf("Provable(%v, %v) = %v, want %v", test.t, test.horizon, got, test.want)
			}
		})
	}
}
