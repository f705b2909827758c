package consumertest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/sim"
)

// failure is a case that fails.
type failure struct {
	first result
	rate  int // of again runs, which fail by the same rule
	last  result
}

const (
	again    = 20  // runs that show whether the case fails each time
	attempts = 300 // runs that shorten it
)

// try runs case n, and shortens it if it fails.
func (s *Simulation) try(t *testing.T, n int) (r result, f *failure) {
	t.Helper()
	r = s.run(t, n, nil, nil, nil)
	if s.Fired != nil {
		for _, f := range r.fired {
			s.Fired(f.Boundary, f.Action)
		}
	}
	if r.err == nil {
		return r, nil
	}
	return r, s.shorten(t, n, r)
}

// shorten looks for the fewest faults, messages and processes that still fail by the same rule.
func (s *Simulation) shorten(t *testing.T, n int, r result) *failure {
	t.Helper()
	f := &failure{first: r, last: r}
	same := func(other result) bool { return other.err != nil && sim.Rule(other.err) == sim.Rule(r.err) }
	for range again {
		if same(s.run(t, n, nil, sim.Listed(r.fired, r.spare), nil)) {
			f.rate++
		}
	}
	faults, of, left := r.fired, r.setup, attempts
	fails := func(faults []sim.Fault, spare int, of setup) bool {
		left--
		return same(s.run(t, n, func(shape *setup) { *shape = of }, sim.Listed(faults, spare), nil))
	}
	spare := r.spare
	for before := -1; before != left && left > 0; { // fewer messages may need fewer faults
		before = left
		if spare > 0 && fails(faults, 0, of) {
			spare = 0
		}
		smaller := sim.Shrink(faults, left, func(rest []sim.Fault) bool { return fails(rest, spare, of) })
		if len(smaller) == len(faults) && before != attempts {
			break
		}
		faults = smaller
		of.messages = sim.Shrink(of.messages, left, func(rest []int) bool {
			c := of
			c.messages = rest
			return len(rest) > 0 && fails(faults, spare, c)
		})
		for _, less := range []*int{&of.processes, &of.lanes, &of.most, &of.relays, &of.replays} {
			for *less > 1 || less == &of.replays && *less > 0 {
				*less--
				if !fails(faults, spare, of) {
					*less++
					break
				}
			}
		}
	}
	for range again { // the last one, with its trace
		last := s.run(t, n, func(shape *setup) { *shape = of }, sim.Listed(faults, spare), &sim.Trace{})
		if same(last) {
			f.last = last
			break
		}
	}
	if f.last.trace == nil {
		f.last = s.run(t, n, nil, sim.Listed(r.fired, r.spare), &sim.Trace{})
	}
	return f
}

// concerned returns the IDs of the messages that the error names; all, if it names none.
func (f *failure) concerned() (ids []string) {
	var named []string
	for _, m := range f.last.messages {
		if m.ID == "" || slices.Contains(ids, m.ID) {
			continue
		}
		ids = append(ids, m.ID)
		if f.last.err != nil && strings.Contains(f.last.err.Error(), m.ID) {
			named = append(named, m.ID)
		}
	}
	if len(named) > 0 {
		return named
	}
	return ids
}

// exactly returns a pattern for go test -run, between single quotes of a shell, that matches the test of that name.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(part), "'", ".") + "$"
	}
	return strings.Join(parts, "/")
}

// explain returns what a bug report needs.
func (f *failure) explain(test string, s Simulation, n int) string {
	command := os.Getenv("TXONCE_SIMULATION") // how the caller's caller runs this test
	if command == "" {
		command = fmt.Sprintf("go test -run '%s'", exactly(test))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n\nSEED=%d FROM=%d CASES=1 %s\n\n", f.first.err, s.Seed, n, command)
	if f.rate < again {
		fmt.Fprintf(&b, "It fails in %d of %d runs: goroutines that are ready at the same moment take another order.\n\n",
			f.rate, again)
	}
	b.WriteString("The shortest plan that still fails: ")
	f.last.write(&b)
	fmt.Fprintf(&b, "\n\nbroken: %v\n", f.last.err)
	for _, id := range f.concerned() {
		fmt.Fprintf(&b, "\nthe history of %s:\n%s\n", id, strings.Join(f.last.trace.About(id), "\n"))
	}
	return b.String()
}

// tell returns what happens in case n, which does not fail.
func (s *Simulation) tell(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "Case %d of seed %d does not fail: ", n, s.Seed)
	s.run(t, n, nil, nil, &sim.Trace{}).write(&b)
	return b.String()
}

// write writes the plan and the trace.
func (r result) write(b *strings.Builder) {
	fmt.Fprintf(b, "%v.\n", r.setup)
	for i, fault := range r.fired {
		fmt.Fprintf(b, "%3d. %v\n", i+1, fault)
	}
	if len(r.fired) == 0 {
		b.WriteString("     no fault at all\n")
	}
	b.WriteString("\nSeconds, process, what happens (<-- a fault; a lane is a goroutine that receives):\n")
	lines := r.trace.Lines()
	if most := 400; len(lines) > most {
		fmt.Fprintf(b, "(the first %d lines are left out)\n", len(lines)-most)
		lines = lines[len(lines)-most:]
	}
	b.WriteString(strings.Join(lines, "\n"))
}
