package relay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// story is the input of a property test: the enqueued messages, and the faults.
type story struct {
	shards, relays int
	atomic         bool
	ordered        bool
	cfg            relay.Config
	steps          []step
}

type step struct {
	msgs  []outbox.Message
	fates [][]string // of msgs
	relay int
	upset string
	lasts time.Duration
	pause time.Duration // before the next step
}

func drawStory(t *rapid.T) (s story) {
	draw := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
	s.shards, s.relays, s.atomic = draw("shards", 1, 6), draw("relays", 1, 3), rapid.Bool().Draw(t, "atomic")
	s.ordered = !s.atomic && rapid.Bool().Draw(t, "ordered")
	s.cfg = relay.Config{
		BatchSize: draw("batch size", 1, 20), Workers: draw("workers", 1, 3),
		ParkPolicy: outbox.ParkPolicy(draw("followers park", 0, 1)),
		LeaseTTL:   10 * time.Second, PublishTimeout: 4 * time.Second, MaxAttempts: 1000,
		Backoff: backoff.FullJitter(50*time.Millisecond, 2*time.Second),
	}
	fates := rapid.SliceOfN(rapid.SampledFrom([]string{takes, takes, refuses, forgets, unavailable, isLate, hangs, panicking}), 0, 3)
	upsets := rapid.SampledFrom([]string{
		"", "", "frozen", "settle fails", "settle's answer is lost",
		"database is away", "renew fails", "restart",
	})
	for id, n := 0, draw("steps", 1, 12); n > 0; n-- {
		st := step{
			relay: draw("relay", 0, s.relays-1), upset: upsets.Draw(t, "upset"),
			lasts: time.Duration(draw("lasts", 0, 25000)) * time.Millisecond,
			pause: time.Duration(draw("pause", 0, 15000)) * time.Millisecond,
		}
		for range draw("messages", 0, 6) {
			id++
			m := msg(fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"a", "b", "c", "-"}).Draw(t, "key"), id))
			if draw("topic", 0, 3) == 0 {
				m.Topic = "audit"
			}
			f := fates.Draw(t, "fates")
			if draw("poison", 0, 30) == 30 {
				f = []string{never}
			}
			st.msgs, st.fates = append(st.msgs, m), append(st.fates, f)
		}
		s.steps = append(s.steps, st)
	}
	return s
}

// Brokers refuse, lose answers, hang and go away; processes freeze past their lease; the database fails; relays come
// and go. In the end every message was published, first occurrences are in the order of their keys, and nothing is
// pending.
func TestRelayKeepsItsPromise(t *testing.T) {
	injected, repeats := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		s := drawStory(r)
		w := &world{
			memory: &outboxtest.Memory{Shards: s.shards}, atomic: s.atomic, ordered: s.ordered,
			fates: map[string][]string{}, injected: map[string]int{},
		}
		synctest.Test(t, func(t *testing.T) { w.play(t, s) })
		n, err := w.check()
		if err != nil {
			r.Fatalf("%v; what arrived: %v", err, w.log)
		}
		repeats += n
		for what, n := range w.injected {
			injected[what] += n
		}
	})
	t.Logf("injected %v; %d repeats", injected, repeats)
	for _, what := range []string{
		refuses, forgets, unavailable, isLate, hangs, panicking, never,
		"frozen", "settle fails", "settle's answer is lost", "database is away", "renew fails", "restart",
	} {
		if injected[what] == 0 {
			t.Errorf("no case had: %s", what)
		}
	}
	if repeats == 0 {
		t.Error("nothing was published twice: the faults did not hit")
	}
}

// play runs s, and then waits until nothing is pending.
func (w *world) play(t *testing.T, s story) {
	processes, stops := make([]*process, s.relays), make([]func(), s.relays)
	for i := range s.relays {
		processes[i], stops[i] = w.run(t, s.cfg)
	}
	for _, st := range s.steps {
		w.mu.Lock()
		for i, m := range st.msgs {
			w.fates[m.ID] = st.fates[i]
		}
		w.mu.Unlock()
		enqueue(t, w.memory, st.msgs...)
		switch i := st.relay; st.upset {
		case "":
		case "restart":
			w.inject(st.upset)
			stops[i]()
			processes[i], stops[i] = w.run(t, s.cfg)
		default:
			processes[i].upset(st.upset, st.lasts)
		}
		<-time.After(st.pause)
	}
	w.settle(t)
	w.mu.Lock()
	w.repaired = true
	w.mu.Unlock()
	for range 10 { // a Settle whose answer was lost may park messages again that were unparked in between
		parked, err := w.memory.Parked(t.Context(), outbox.ParkedFilter{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parked {
			if _, err := w.memory.Unpark(t.Context(), p.Seq); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(t)
		<-time.After(10 * time.Second)
	}
	for _, stop := range stops {
		stop()
	}
	if got := stats(t, w.memory); got != "0 pending, 0 parked, 0 waiting" {
		w.rule("in the end %s", got)
	}
}

// settle waits until nothing is pending.
func (w *world) settle(t *testing.T) {
	for range 600 {
		st, err := w.memory.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.Pending == 0 {
			return
		}
		<-time.After(time.Second)
	}
	w.rule("ten minutes after the last message: %s", stats(t, w.memory))
}

// check returns how many publications were repeats.
func (w *world) check() (repeats int, err error) {
	seen, last := map[string]bool{}, map[string]int{}
	for _, id := range w.log {
		if seen[id] {
			repeats++
			continue
		}
		seen[id] = true
		var n int
		if _, err := fmt.Sscanf(id[1:], "%d", &n); err != nil {
			return 0, err
		}
		if key := msg(id).OrderingKey; key != "" {
			if n < last[key] {
				w.rule("key %s: %d arrived first after %d", key, n, last[key])
			}
			last[key] = n
		}
	}
	for id := range w.fates {
		if !seen[id] {
			w.rule("%s was never published", id)
		}
	}
	if len(w.broken) > 0 {
		return 0, fmt.Errorf("broken: %v", w.broken)
	}
	return repeats, nil
}
