package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// These are the fates of one publication.
const (
	takes       = "takes it"
	refuses     = "refuses it"
	forgets     = "takes it and its answer is lost"
	unavailable = "is unavailable"
	isLate      = "takes a second"
	hangs       = "hangs until the deadline"
	panicking   = "makes the publisher panic"
	never       = "refuses it for good"
)

// world is an outbox, two brokers, and relays whose processes and connections fail.
type world struct {
	memory *outboxtest.Memory
	atomic bool // a publisher's calls are all or nothing

	mu       sync.Mutex
	fates    map[string][]string // the fates of the next publications of a message; later ones succeed
	log      []string            // what arrived at either broker
	repaired bool                // nothing is refused for good any more
	injected map[string]int
	broken   []string // rules
}

func (w *world) fate(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.fates[id]
	if len(left) == 0 {
		return takes
	}
	if left[0] == never {
		if w.repaired {
			return takes
		}
		w.injected[never]++
		return never
	}
	w.fates[id] = left[1:]
	w.injected[left[0]]++
	return left[0]
}

func (w *world) inject(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.injected[what]++
}

func (w *world) rule(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// process is one relay's process: its publishers, and its connection to the database.
type process struct {
	*world
	faulty
	mu     sync.Mutex
	frozen time.Time // the process is paused until then, as by SIGSTOP
}

// thaw waits until the process goes on.
func (p *process) thaw() {
	for {
		p.mu.Lock()
		left := time.Until(p.frozen)
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		<-time.After(left)
	}
}

func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = time.Now().Add(d)
}

// Atomic is never true of both publishers of a process: see plainly.
func (p *process) Atomic() bool { return p.atomic }

func (p *process) Publish(ctx context.Context, msgs []outbox.Message) []error {
	p.thaw()
	if p.atomic {
		return p.publishAll(ctx, msgs)
	}
	return p.publishEach(ctx, msgs)
}

func (p *process) publishEach(ctx context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	keys := map[string]bool{}
	for i, m := range msgs {
		if m.Key != "" && keys[m.Key] {
			p.rule("two messages of key %s in one call", m.Key)
		}
		keys[m.Key] = true
		errs[i] = p.publish(ctx, m)
	}
	return errs
}

// publishAll finds the first message with a fault. Its fate is the fate of all messages of the call.
func (p *process) publishAll(ctx context.Context, msgs []outbox.Message) []error {
	for i, m := range msgs {
		fate := p.fate(m.ID)
		if fate == takes {
			continue
		}
		err := p.meet(ctx, fate)
		if fate == isLate && err == nil {
			continue
		}
		if fate == forgets {
			break
		}
		errs := slices.Repeat([]error{outbox.ErrNotTried}, len(msgs))
		if fate == unavailable || fate == hangs {
			return slices.Repeat([]error{err}, len(msgs))
		}
		errs[i] = err
		return errs
	}
	p.thaw()
	for _, m := range msgs {
		p.arrive(m)
	}
	return nil
}

func (p *process) publish(ctx context.Context, m outbox.Message) error {
	fate := p.fate(m.ID)
	err := p.meet(ctx, fate)
	p.thaw()
	if err == nil || fate == forgets {
		p.arrive(m)
	}
	return err
}

// meet returns the answer that the publisher gets.
func (p *process) meet(ctx context.Context, fate string) error {
	switch fate {
	case refuses:
		return errRefused
	case forgets:
		return errors.New("connection reset")
	case unavailable:
		return &outbox.UnavailableError{Err: errRefused}
	case isLate:
		return await.Sleep(ctx, time.Second)
	case hangs:
		return await.Sleep(ctx, time.Hour)
	case panicking:
		panic("boom")
	case never:
		return outbox.Permanent(errRefused)
	}
	return nil
}

func (p *process) arrive(m outbox.Message) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.log = append(p.log, m.ID)
}

// plainly is a publisher beside an atomic one.
type plainly struct{ p *process }

func (p plainly) Publish(ctx context.Context, msgs []outbox.Message) []error {
	p.p.thaw()
	return p.p.publishEach(ctx, msgs)
}

// run starts a relay of its own session in p.
func (w *world) run(t tb, cfg relay.Config) (p *process, stop func()) {
	p = &process{world: w}
	p.Queue = w.memory
	cfg.Queue, cfg.Publisher, cfg.Publishers = p, p, map[string]outbox.Publisher{"audit": plainly{p}}
	_, stop = start(t, cfg)
	return p, stop
}

// upset applies a fault to p for a while.
func (p *process) upset(what string, d time.Duration) {
	p.inject(what)
	until := time.Now().Add(d)
	ops := map[string][]string{"settle fails": {"settle"}, "settle's answer is lost": {"settled"}, "database is away": {"open", "renew", "lease", "settle", "maintain"}, "renew fails": {"renew"}}[what]
	if ops == nil {
		p.freeze(d)
		p.set(func(string) error { p.thaw(); return nil })
		return
	}
	p.set(func(op string) error {
		if time.Now().Before(until) && slices.Contains(ops, op) {
			return errFault
		}
		return nil
	})
}

// story is the input of a property test: the enqueued messages, and the faults.
type story struct {
	shards, relays int
	atomic         bool
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
	s.cfg = relay.Config{
		BatchSize: draw("batch size", 1, 20), Workers: draw("workers", 1, 3), ParkPolicy: outbox.ParkPolicy(draw("followers park", 0, 1)),
		LeaseTTL: 10 * time.Second, PublishTimeout: 4 * time.Second, MaxAttempts: 1000, Backoff: backoff.FullJitter(50*time.Millisecond, 2*time.Second),
	}
	fates := rapid.SliceOfN(rapid.SampledFrom([]string{takes, takes, refuses, forgets, unavailable, isLate, hangs, panicking}), 0, 3)
	upsets := rapid.SampledFrom([]string{"", "", "frozen", "settle fails", "settle's answer is lost", "database is away", "renew fails", "restart"})
	for id, n := 0, draw("steps", 1, 12); n > 0; n-- {
		st := step{
			relay: draw("relay", 0, s.relays-1), upset: upsets.Draw(t, "upset"),
			lasts: time.Duration(draw("lasts", 0, 25000)) * time.Millisecond, pause: time.Duration(draw("pause", 0, 15000)) * time.Millisecond,
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

// Brokers refuse, lose answers, hang and go away; processes freeze past their lease; the database fails; relays come and go. In
// the end every message was published, first occurrences are in the order of their keys, and nothing is pending.
func TestRelayKeepsItsPromise(t *testing.T) {
	injected, repeats := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		s := drawStory(r)
		w := &world{memory: &outboxtest.Memory{Shards: s.shards}, atomic: s.atomic, fates: map[string][]string{}, injected: map[string]int{}}
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
		if key := msg(id).Key; key != "" {
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
