package consumertest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/consumertest"
)

// simulationOf returns the simulation that case n belongs to: each fourth is a pipeline, and each fourth makes calls.
func simulationOf(n int) consumertest.Simulation {
	switch {
	case n%4 == 1:
		return consumertest.WithDiscards(paymentSimulation())
	case n%4 == 3:
		return consumertest.WithDiscards(consumertest.Simulation{
			New: billing(true), Messages: orders, Next: accounting, Check: exact(true), Effects: charges,
			Processes: 3, Relays: 2,
		})
	}
	return consumertest.WithDiscards(consumertest.Simulation{
		New: billing(false), Messages: orders, Check: exact(false), Effects: charges, Processes: 3,
	})
}

// TestSimulation runs cases until CASES are done, or for SECONDS, and prints how often each fault happened. With
// COUNTS, it writes them to that file. STRIDE is the distance of the cases of one of several processes.
func TestSimulation(t *testing.T) {
	cases, from, stride := number(t, "CASES", 3000), number(t, "FROM", 0), number(t, "STRIDE", 1)
	if testing.Short() && os.Getenv("CASES") == "" {
		cases = 300
	}
	seed, within := number(t, "SEED", 1), time.Duration(number(t, "SECONDS", 0))*time.Second
	cells, began, faults, done := newCounts(), time.Now(), 0, 0
	for n := from; within == 0 && done < cases || within > 0 && time.Since(began) < within; n += stride {
		s := simulationOf(n)
		s.Seed = uint64(seed)
		s.Fired = func(boundary, action string) { cells.add(n, boundary, action); faults++ }
		if said := consumertest.SimulateCase(t, s, n); said != "" {
			t.Fatal(said)
		}
		if os.Getenv("CASES") == "1" {
			t.Log(consumertest.TellCase(t, s, n))
		}
		done++
	}
	took := time.Since(began)
	t.Logf("%d cases, %d faults in %v: %.0f cases and %.0f faults in a second", done, faults, took.Round(time.Millisecond),
		float64(done)/took.Seconds(), float64(faults)/took.Seconds())
	for _, c := range cells.sorted() {
		if c.Faults == 0 && os.Getenv("CASES") != "" {
			continue
		}
		t.Logf("%-10s %-24s %7d faults in %7d cases", c.Boundary, c.Action, c.Faults, c.Cases)
	}
	if faults == 0 {
		t.Error("no fault happened: the simulation has shown nothing")
	}
	if path := os.Getenv("COUNTS"); path != "" {
		writeCounts(t, path, done, cells)
	}
}

// The same seed and number are the same case, in each step: without a relay always, and with relays and calls at most
// one of a thousand differs. The race detector lets goroutines that are ready run in random order, so one of ten may
// differ.
func TestASimulatedCaseCanBeRepeated(t *testing.T) {
	cases, from := number(t, "CASES", 300), number(t, "FROM", 0)
	differ, all := map[bool]int{}, map[bool]int{}
	for n := from; n < from+cases; n++ {
		s := simulationOf(n)
		s.Seed = uint64(number(t, "SEED", 1))
		first, second := consumertest.TraceOf(t, s, n), consumertest.TraceOf(t, s, n)
		relays := s.Relays > 0
		if all[relays]++; slices.Equal(first, second) {
			continue
		}
		differ[relays]++
		at := 0
		for at < min(len(first), len(second)) && first[at] == second[at] {
			at++
		}
		t.Logf("case %d differs from line %d on:\n%s\n---\n%s", n, at+1,
			strings.Join(first[max(0, at-5):min(len(first), at+3)], "\n"),
			strings.Join(second[max(0, at-1):min(len(second), at+3)], "\n"))
	}
	t.Logf("%d of %d cases without relays differ when they run again, and %d of %d with relays", differ[false], all[false],
		differ[true], all[true])
	if raced && 10*(differ[false]+differ[true]) <= cases {
		return
	}
	if differ[false] > 0 || 1000*differ[true] > max(1000, all[true]) {
		t.Errorf("%d of %d cases without relays differ when they run again, and %d of %d with relays", differ[false],
			all[false], differ[true], all[true])
	}
}
