package consumertest

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/sim"
)

// FailedHandlerCases runs TestHandler's cases without failing t, and says what each one complains of.
func FailedHandlerCases[TTx any](t *testing.T, h HandlerTest[TTx]) map[string]string {
	if err := h.complete(); err != nil {
		return map[string]string{"": err.Error()}
	}
	failed := map[string]string{}
	for n, c := range handlerCases(h) {
		rec := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // for FailNow to end
			defer close(done)
			c.run(&handlerRun[TTx]{TB: rec, test: h, n: n})
		}()
		<-done
		if rec.said != "" {
			failed[c.name] = rec.said
		}
	}
	return failed
}

// recorder is a testing.TB that fails without failing.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatal(args ...any) {
	r.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// SimulateCase runs one case of a simulation, and returns what explains its failure; empty: it does not fail.
func SimulateCase(t *testing.T, s Simulation, n int) string {
	t.Helper()
	s = s.withDefaults()
	defer exclusively()()
	if _, f := s.try(t, n); f != nil {
		return f.explain(t.Name(), s, n)
	}
	return ""
}

// Simulated is Simulate, but returns what it would fail with.
func Simulated(t *testing.T, s Simulation) string {
	t.Helper()
	if err := s.complete(); err != nil {
		return err.Error()
	}
	return s.withDefaults().simulate(t)
}

// TraceOf runs one case of a simulation, and returns its trace.
func TraceOf(t *testing.T, s Simulation, n int) []string {
	t.Helper()
	s = s.withDefaults()
	defer exclusively()()
	return s.run(t, n, nil, nil, &sim.Trace{}).trace.Lines()
}

// Exactly is what a failure of a simulation prints for go test -run.
var Exactly = exactly

// TellCase runs one case of a simulation that does not fail, and returns what happens.
func TellCase(t *testing.T, s Simulation, n int) string {
	t.Helper()
	s = s.withDefaults()
	defer exclusively()()
	return s.tell(t, n)
}

// SimulationMenu has the actions of each boundary of a simulation.
var SimulationMenu = menu

// WithDiscards returns s with an operator who discards some dead letters.
func WithDiscards(s Simulation) Simulation {
	s.discards = true
	return s
}

// Discarded reports whether the operator has discarded the message with that key.
func Discarded(w *World, key dedup.Key) bool { return w.w.isDiscarded(key) }

// WithEnvironment returns s as Simulate runs it.
func WithEnvironment(s Simulation) (Simulation, error) { return s.withEnvironment() }
