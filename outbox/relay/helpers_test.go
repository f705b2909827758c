package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tb is a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// newRelay fills in the fields that a test does not set.
func newRelay(t tb, cfg relay.Config) *relay.Relay {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a relay in a bubble of synctest; stop ends it and waits until it has.
func start(t tb, cfg relay.Config) (r *relay.Relay, stop func()) {
	t.Helper()
	r = newRelay(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	return r, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Fatalf("Run = %v, want nil after its context has ended", err)
		}
	}
}

// msg is a message whose key is the letters that its id begins with; "-1" has none.
func msg(id string) outbox.Message {
	return outbox.Message{
		ID: id, Topic: "orders", OrderingKey: strings.TrimRight(id, "-0123456789"),
		Payload: []byte(id),
	}
}

// enqueue commits messages in one transaction.
func enqueue(t tb, m *outboxtest.Memory, msgs ...outbox.Message) {
	t.Helper()
	ctx := context.Background()
	if err := m.InTx(ctx, func(tx *outboxtest.Tx) error { return m.Enqueue(ctx, tx, msgs...) }); err != nil {
		t.Fatal(err)
	}
}

func enqueueIDs(t tb, m *outboxtest.Memory, ids ...string) {
	t.Helper()
	msgs := make([]outbox.Message, len(ids))
	for i, id := range ids {
		msgs[i] = msg(id)
	}
	enqueue(t, m, msgs...)
}

// stats of the outbox, in a few words.
func stats(t tb, m *outboxtest.Memory) string {
	t.Helper()
	s, err := m.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d pending, %d parked, %d waiting", s.Pending, s.Parked, s.Waiting)
}

// arrived lists the IDs of the messages at the broker, in their order.
func arrived(p *outboxtest.FakePublisher) []string {
	ids := []string{}
	for _, m := range p.Published() {
		ids = append(ids, m.ID)
	}
	return ids
}

// recorder is a Publisher that records each call before the next one answers.
type recorder struct {
	outbox.Publisher

	mu    sync.Mutex
	calls [][]string
}

func (r *recorder) Publish(ctx context.Context, msgs []outbox.Message) []error {
	ids := make([]string, len(msgs))
	for i := range msgs {
		ids[i] = msgs[i].ID
	}
	r.mu.Lock()
	r.calls = append(r.calls, ids)
	r.mu.Unlock()
	return r.Publisher.Publish(ctx, msgs)
}

func (r *recorder) Calls() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// publisherFunc is a Publisher that is one function.
type publisherFunc func(ctx context.Context, msgs []outbox.Message) []error

func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) []error {
	return f(ctx, msgs)
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// faulty is a Queue whose calls can be counted, and made to fail.
type faulty struct {
	driver.Queue

	mu    sync.Mutex
	fail  func(op string) error // nil: nothing fails
	calls map[string]int
}

var errFault = errors.New("the database is at fault")

// failing makes the named calls fail with err until it is called again.
func (f *faulty) failing(err error, ops ...string) {
	f.set(func(op string) error {
		if slices.Contains(ops, op) {
			return err
		}
		return nil
	})
}

func (f *faulty) set(fail func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) call(op string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op)
}

func (f *faulty) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *faulty) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *faulty) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	if err := f.call("open"); err != nil {
		return nil, err
	}
	s, err := f.Queue.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &faultySession{s, f}, nil
}

type faultySession struct {
	driver.Session
	f *faulty
}

func (s *faultySession) Wake() <-chan struct{} { return s.Session.(driver.Waker).Wake() }

func (s *faultySession) Maintain(ctx context.Context) error {
	if err := s.f.call("maintain"); err != nil {
		return err
	}
	return s.Session.(driver.Maintainer).Maintain(ctx)
}

func (s *faultySession) Renew(ctx context.Context) (driver.Hold, error) {
	if err := s.f.call("renew"); err != nil {
		return driver.Hold{}, err
	}
	return s.Session.Renew(ctx)
}

func (s *faultySession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if err := s.f.call("lease"); err != nil {
		return nil, err
	}
	return s.Session.Lease(ctx, want)
}

// Settle asks for a second fault, "settled", after it has succeeded: an error then is a lost answer.
func (s *faultySession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if err := s.f.call("settle"); err != nil {
		return err
	}
	if err := s.Session.Settle(ctx, outcomes); err != nil {
		return err
	}
	return s.f.call("settled")
}

// settled returns a Trace that calls f for each message that is settled with outcome.
func settled(outcome observe.Outcome, f func(s relay.Settlement)) *relay.Trace {
	return &relay.Trace{Settled: func(_ context.Context, messages []relay.Settlement) {
		for _, s := range messages {
			if s.Outcome == outcome {
				f(s)
			}
		}
	}}
}

// leaseLost returns a Trace that calls f for each lease that is lost.
func leaseLost(f func(err error)) *relay.Trace {
	return &relay.Trace{Lease: func(_ context.Context, e relay.LeaseEvent) {
		if e.Kind == relay.LeaseLost || e.Kind == relay.LeaseStale {
			f(e.Err)
		}
	}}
}
