package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
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
	memory  *outboxtest.Memory
	atomic  bool // a publisher's calls are all or nothing
	ordered bool // a publisher publishes nothing of a key behind a failure

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

// Ordered is never true of both publishers of a process either.
func (p *process) Ordered() bool { return p.ordered }

func (p *process) Publish(ctx context.Context, msgs []outbox.Message) []error {
	p.thaw()
	switch {
	case p.atomic:
		return p.publishAll(ctx, msgs)
	case p.ordered:
		return p.publishInOrder(ctx, msgs)
	}
	return p.publishEach(ctx, msgs)
}

func (p *process) publishInOrder(ctx context.Context, msgs []outbox.Message) []error {
	errs, failed := make([]error, len(msgs)), map[string]bool{}
	for i, m := range msgs {
		if failed[m.OrderingKey] {
			errs[i] = driver.ErrNotTried
			continue
		}
		errs[i] = p.publish(ctx, m)
		failed[m.OrderingKey] = errs[i] != nil && m.OrderingKey != ""
	}
	return errs
}

func (p *process) publishEach(ctx context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	keys := map[string]bool{}
	for i, m := range msgs {
		if m.OrderingKey != "" && keys[m.OrderingKey] {
			p.rule("two messages of key %s in one call", m.OrderingKey)
		}
		keys[m.OrderingKey] = true
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
		errs := slices.Repeat([]error{driver.ErrNotTried}, len(msgs))
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
	ops := map[string][]string{
		"settle fails": {"settle"}, "settle's answer is lost": {"settled"},
		"database is away": {"open", "renew", "lease", "settle", "maintain"}, "renew fails": {"renew"},
	}[what]
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
