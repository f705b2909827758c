package consumertest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
)

// Kinds of messages, in the header "kind".
const (
	good    = "good"
	poison  = "poison"  // fails each time
	flaky   = "flaky"   // fails once
	keyless = "keyless" // has no ID, which is the key
)

var errPoison = errors.New("poison")

// orders returns one to three messages, some of which were sent twice.
func orders(r *rand.Rand) (msgs []consumer.Message) {
	for i := range 1 + r.IntN(3) {
		kind := good
		switch {
		case r.IntN(8) == 0:
			kind = poison
		case r.IntN(6) == 0:
			kind = flaky
		}
		id := fmt.Sprint("m", i+1)
		m := consumer.Message{ID: id, Payload: []byte(id)}
		if kind == poison && i == 2 {
			kind, m.ID = keyless, ""
		}
		m.Headers = map[string]string{"kind": kind}
		for range 1 + r.IntN(5)/4 {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

// billing is the first consumer: it has one effect for each message, and enqueues one message if there are relays.
func billing(relays bool) func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
	return func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
		r, store := p.Rand(), p.Store()
		return consumer.New(consumer.Config[tx]{
			Name: "billing", Store: store, Key: consumer.MessageID,
			MaxAttempts: maxAttempts(r), MaxPerTransaction: r.IntN(3), Backoff: p.Backoff, Logger: slog.New(slog.DiscardHandler),
			Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				if err := tx.Add("charge of " + m.ID); err != nil {
					return err
				}
				switch kind := m.Headers["kind"]; {
				case kind == poison:
					return consumer.Permanent(errPoison)
				case kind == flaky && p.Shared(newOnce).(*once).first(m.ID):
					return errors.New("not yet")
				case !relays:
					return nil
				}
				return store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: "k", Payload: m.Payload})
			},
		})
	}
}

// once reports of each name once that it is the first time.
type once struct {
	mu   sync.Mutex
	seen map[string]bool
}

func newOnce() any { return &once{seen: map[string]bool{}} }

func (o *once) first(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.seen[name]
	o.seen[name] = true
	return !before
}

// maxAttempts is the first that is drawn of the settings.
func maxAttempts(r *rand.Rand) int { return 1 + r.IntN(3) }

// accounting is the second consumer.
func accounting(p *consumertest.Process) (*consumer.Consumer[tx], error) {
	return consumer.New(consumer.Config[tx]{
		Name: "accounting", Store: p.Store(), Key: consumer.MessageID, Backoff: p.Backoff,
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if err := p.Step(ctx, "think about "+string(m.Payload)); err != nil {
				return err
			}
			return tx.Add("entry of " + string(m.Payload))
		},
	})
}

func charges(w *consumertest.World, m *consumer.Message) int {
	return w.Database().Count("charge of " + m.ID)
}

// exact checks what is due for each kind of message, and each outgoing message's ID and effect.
func exact(relays bool) func(w *consumertest.World) error {
	return func(w *consumertest.World) error {
		ids := map[string]string{} // of outgoing messages by payload
		for _, m := range w.Published() {
			if before, found := ids[string(m.Payload)]; found && before != m.ID {
				return fmt.Errorf("%s was published as %s and as %s", m.Payload, before, m.ID)
			}
			ids[string(m.Payload)] = m.ID
		}
		letters := map[string]int{}
		for _, l := range w.Letters() {
			letters[cmp.Or(l.Record.Key.ID, l.Message.Position)]++
		}
		for i, m := range w.Delivered() {
			effects, parked := charges(w, &m), letters[m.ID]
			switch m.Headers["kind"] {
			case keyless: // each delivery is a message of its own
				if n := letters[fmt.Sprint("in/", i)]; effects != 0 || n != 1 {
					return fmt.Errorf("%s has no key, and has %d effects and %d dead letters, want 0 and 1", m.Payload, effects, n)
				}
			case good:
				if effects != 1 || parked != 0 {
					return fmt.Errorf("%s has %d effects and %d dead letters, want 1 and 0", m.ID, effects, parked)
				}
			case flaky: // with one attempt it is parked, or done by another delivery
				if maxAttempts(w.Rand()) > 1 && (effects != 1 || parked != 0) {
					return fmt.Errorf("%s fails once, and has %d effects and %d dead letters, want 1 and 0", m.ID, effects, parked)
				}
			case poison:
				if effects != 0 || parked != 1 {
					return fmt.Errorf("%s has %d effects and %d dead letters, want 0 and 1", m.ID, effects, parked)
				}
			}
			if entries := w.Database().Count("entry of " + m.ID); relays && entries != effects {
				return fmt.Errorf("%s has %d effects, and %d at the end of the pipeline", m.ID, effects, entries)
			}
		}
		return nil
	}
}

// simulationOf returns the simulation that case n belongs to: each fourth is a pipeline, and each fourth makes calls.
func simulationOf(n int) consumertest.Simulation {
	switch {
	case n%4 == 1:
		return paymentSimulation()
	case n%4 == 3:
		return consumertest.Simulation{
			New: billing(true), Messages: orders, Next: accounting, Check: exact(true), Effects: charges,
			Processes: 3, Relays: 2,
		}
	}
	return consumertest.Simulation{
		New: billing(false), Messages: orders, Check: exact(false), Effects: charges, Processes: 3,
	}
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
