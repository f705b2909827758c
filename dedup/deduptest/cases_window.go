package deduptest

import (
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// windowCases are about the windows that consumers have run with.
func windowCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a consumer that never forgot may read old messages", run: neverForgot[TTx]},
		{name: "a window raised does not hide what a shorter one forgot", run: windowRaised[TTx]},
		{name: "a window lowered forgets no older claims", run: windowLowered[TTx]},
		{name: "a short window out of use is left behind", run: windowOutOfUse[TTx]},
		{name: "a node that claimed long ago registers again", run: registersAgain[TTx]},
		{name: "a window counts from Register on", run: registeredWindow[TTx]},
	}
}

func neverForgot[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	reader := recordAt("before", time.Now().Add(-9000*time.Hour), 0)
	reader.Key.Consumer = "reader"
	e.must(t, s, reader, dedup.First)
	e.forgotten(t, "k", 2*time.Hour) // by another consumer
	s = e.node(t)
	reader.Key.ID = "after"
	e.must(t, s, reader, dedup.First)
	reader.Key.Consumer = "newcomer"
	e.must(t, s, reader, dedup.First)
	reader.Key.Consumer = consumer
	e.must(t, s, reader, dedup.Unprovable)
}

func windowRaised[TTx any](t *testing.T, e *env[TTx]) {
	claimed := e.forgotten(t, "k", 2*time.Hour)
	s := e.node(t)
	e.must(t, s, recordAt("k", claimed, 1000*time.Hour), dedup.Unprovable)
	e.must(t, s, recordAt("younger", claimed.Add(time.Minute), 1000*time.Hour), dedup.First)
}

func windowLowered[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	now := time.Now()
	e.must(t, s, recordAt("kept", now, 48*time.Hour), dedup.First)
	e.must(t, s, recordAt("forgotten", now, 2*time.Hour), dedup.First)
	const age = 10 * time.Hour
	e.Age(t, age)
	s = e.node(t)
	sweepAll(t, s, 100)
	e.must(t, s, recordAt("kept", now.Add(-age), 2*time.Hour), dedup.Duplicate)
	e.must(t, s, recordAt("forgotten", now.Add(-age), 48*time.Hour), dedup.Unprovable)
	e.must(t, s, recordAt("forgotten", now.Add(-age), 2*time.Hour), dedup.Unprovable)
}

// windowOutOfUse: after nobody has claimed with the short window for a long time, later sweeps do not move its horizon.
func windowOutOfUse[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.must(t, s, recordAt("k", time.Now(), 2*time.Hour), dedup.First)
	e.Age(t, 200*time.Hour)
	e.must(t, e.node(t), recordAt("l", time.Now(), 1000*time.Hour), dedup.First)
	e.Age(t, 200*time.Hour)
	e.forgotten(t, "m", 2*time.Hour) // the window is in use again, and a key of it is deleted
	s = e.node(t)
	e.must(t, s, recordAt("old", time.Now().Add(-100*time.Hour), 1000*time.Hour), dedup.Unprovable)

	other := e.fresh(t)
	s = other.node(t)
	other.must(t, s, recordAt("k", time.Now(), 2*time.Hour), dedup.First)
	other.must(t, s, recordAt("l", time.Now(), 1000*time.Hour), dedup.First)
	other.Age(t, 200*time.Hour)
	// its deletion makes the latest forgotten expiry the present
	r := recordAt("of another consumer", time.Now(), 2*time.Hour)
	r.Key.Consumer = "another"
	other.must(t, other.node(t), r, dedup.First)
	other.Age(t, 3*time.Hour)
	sweepAll(t, other.node(t), 100)
	s = other.node(t)
	other.must(t, s, recordAt("since", time.Now().Add(-100*time.Hour), 1000*time.Hour), dedup.First)
	other.must(t, s, recordAt("k", time.Now().Add(-203*time.Hour), 1000*time.Hour), dedup.Unprovable)
}

// registersAgain: a node whose registration of its window has expired claims again, and must register again.
func registersAgain[TTx any](t *testing.T, e *env[TTx]) {
	e.must(t, e.node(t), recordAt("first use", time.Now(), 2*time.Hour), dedup.First)
	e.Age(t, 100*time.Hour)
	claimed := e.forgotten(t, "k", 2*time.Hour)
	e.must(t, e.node(t), recordAt("k", claimed, 2*time.Hour), dedup.Unprovable)
}

// registeredWindow: after Register, keys may have been claimed with the window, even if none was.
func registeredWindow[TTx any](t *testing.T, e *env[TTx]) {
	if err := register(t, e.node(t), "early", 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	e.Age(t, 100*time.Hour)
	e.forgotten(t, "of another consumer", 2*time.Hour)
	s := e.node(t)
	r := recordAt("k", time.Now().Add(-102*time.Hour), 2*time.Hour)
	r.Key.Consumer = "early"
	e.must(t, s, r, dedup.Unprovable)
	r.Key.Consumer = "late"
	e.must(t, s, r, dedup.First)
}
