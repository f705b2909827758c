package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// relayCases run relays on the store.
func relayCases[TTx any]() []storeCase[TTx] {
	return []storeCase[TTx]{
		{
			name: "two relays publish no message twice while both are healthy", run: healthyRelays[TTx],
			hazard: "24: a shard belongs to one relay at a time",
		},
		{
			name:   "a relay that stops leaves its work to the other, and nothing is published twice",
			run:    relayStops[TTx],
			hazard: "29: there is no leader; all that are alive share the work",
		},
		{
			name: "nothing is lost and nothing passes, whatever fails", run: stress[TTx],
			hazard: "26: every message is published, first occurrences in the order of their key",
		},
	}
}

// relay runs one until stop, which waits for it.
func (e *env[TTx]) relay(name string, cfg relay.Config) (stop func()) {
	e.Helper()
	cfg.Name, cfg.Logger = name, slog.New(slog.DiscardHandler)
	cfg.PollMax = 20 * time.Millisecond
	if cfg.Queue == nil {
		cfg.Queue = e.Queue
	}
	r, err := relay.New(cfg)
	if err != nil {
		e.TB.Fatalf("relay.New: %v", err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			e.Errorf("Run of %s: %v", name, err)
		}
	})
	e.Cleanup(stop)
	return stop
}

// load enqueues messages from several transactions at once. Those of one key exclude each other.
type load struct {
	keys []sync.Mutex

	mu    sync.Mutex
	order map[string][]string // IDs by key, in the order of their transactions
	n     int
	calls int
}

// produce enqueues n messages, and rolls some of the transactions back.
func (e *env[TTx]) produce(l *load, producers, n int) {
	e.Helper()
	l.calls++
	var all sync.WaitGroup
	for p := range producers {
		rng := rand.New(rand.NewPCG(uint64(p), uint64(l.calls)))
		all.Go(func() {
			for i := 0; i < n/producers; {
				k := rng.IntN(len(l.keys))
				key, size := fmt.Sprint("key", k), 1+rng.IntN(4)
				var msgs []outbox.Message
				for range size {
					msgs = append(msgs, message(fmt.Sprintf("%s-%d-%d-%d", key, l.calls, p, i), key))
					i++
				}
				undo := rng.IntN(8) == 0
				l.keys[k].Lock()
				err := e.inTx(func(tx TTx) error {
					if err := e.Writer.Enqueue(e.ctx, tx, msgs...); err != nil || !undo {
						return err
					}
					return errUndo
				})
				if err == nil {
					l.committed(key, msgs)
				}
				l.keys[k].Unlock()
				if err != nil && !errors.Is(err, errUndo) {
					e.Errorf("enqueue: %v", err)
					return
				}
				if rng.IntN(3) == 0 {
					pause(e.ctx)
				}
			}
		})
	}
	all.Wait()
}

func (l *load) committed(key string, msgs []outbox.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order[key] = append(l.order[key], idsOf(msgs)...)
	l.n += len(msgs)
}

// empty waits until nothing is pending.
func (e *env[TTx]) empty(broker *FakePublisher) {
	e.Helper()
	for {
		st := e.stats()
		if st.Pending+st.Delayed+st.Waiting+st.Parked == 0 {
			return
		}
		if e.ctx.Err() != nil {
			e.Fatalf("after %v %d are pending, %d delayed, %d parked, %d waiting; %d were published", limit, st.Pending,
				st.Delayed, st.Parked, st.Waiting, len(broker.Published()))
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-e.ctx.Done():
			timer.Stop()
		}
	}
}

// audit compares the committed messages with those that arrived. It returns how many were repeats.
func (e *env[TTx]) audit(l *load, broker *FakePublisher) (repeats int) {
	e.Helper()
	confirmed, first, seen := map[string]bool{}, map[string][]string{}, map[string]string{}
	var renumbered, missing []string
	for _, p := range broker.Published() {
		seq := p.Headers[outbox.HeaderSequence]
		if before, again := seen[p.ID]; !again {
			first[p.OrderingKey] = append(first[p.OrderingKey], p.ID)
			seen[p.ID] = seq
		} else {
			repeats++
			if before != seq {
				renumbered = append(renumbered, p.ID)
			}
		}
		confirmed[p.ID] = confirmed[p.ID] || p.Confirmed
	}
	for key, want := range l.order {
		for _, id := range want {
			if !confirmed[id] {
				missing = append(missing, id)
			}
		}
		if !slices.Equal(first[key], want) {
			e.Errorf("key %q: first occurrences %s, want %s", key, few(first[key]), few(want))
		}
	}
	if len(missing) > 0 {
		e.Errorf("committed and never confirmed: %s", few(missing))
	}
	if len(renumbered) > 0 {
		e.Errorf("published again with another sequence number: %s", few(renumbered))
	}
	if len(seen) != l.n {
		e.Errorf("%d messages were published, %d committed", len(seen), l.n)
	}
	return repeats
}

func newLoad(keys int) *load {
	return &load{keys: make([]sync.Mutex, keys), order: map[string][]string{}}
}

func healthyRelays[TTx any](e *env[TTx]) {
	l := newLoad(30)
	broker := &FakePublisher{Decide: func(outbox.Message) Fate { return Fate{Delay: time.Duration(rand.IntN(2000)) * time.Microsecond} }}
	e.relay("one", relay.Config{Publisher: broker})
	e.relay("two", relay.Config{Publisher: broker})
	e.produce(l, 4, 800)
	e.empty(broker)
	if repeats := e.audit(l, broker); repeats > 0 {
		e.Errorf("%d of %d messages were published twice by relays that are healthy", repeats, l.n)
	}
}

func relayStops[TTx any](e *env[TTx]) {
	l := newLoad(30)
	var published atomic.Int64
	broker := &FakePublisher{Decide: func(outbox.Message) Fate {
		published.Add(1)
		return Fate{Delay: time.Duration(rand.IntN(2000)) * time.Microsecond}
	}}
	stop := e.relay("leaves", relay.Config{Publisher: broker, BatchSize: 20})
	e.relay("stays", relay.Config{Publisher: broker, BatchSize: 20})
	e.produce(l, 4, 400)
	stop()
	again := e.relay("comes", relay.Config{Publisher: broker, BatchSize: 20})
	e.produce(l, 4, 400)
	again()
	e.empty(broker)
	if repeats := e.audit(l, broker); repeats > 0 {
		e.Errorf("%d of %d messages were published twice, and no relay died", repeats, l.n)
	}
}

// In stress, relays lose their sessions, answers of the store and of the broker are lost, messages fail, and the broker
// is away at times.
func stress[TTx any](e *env[TTx]) {
	l := newLoad(25)
	rate := func(per1000 int) bool { return rand.IntN(1000) < per1000 }
	var calm atomic.Bool
	broker := &FakePublisher{Decide: func(outbox.Message) (f Fate) {
		f.Delay = time.Duration(rand.IntN(1000)) * time.Microsecond
		switch {
		case calm.Load():
		case rate(30):
			f.Err = errRefused
		case rate(30):
			f.Lost = true
		case rate(2):
			f.Delay = time.Second
		}
		return f
	}}
	queue := &faulty{Queue: e.Queue, calm: &calm}
	if e.Age != nil {
		queue.died = func(name string) { e.age(name, 2*e.ttl) }
	}
	cfg := relay.Config{
		Queue: queue, Publisher: broker, BatchSize: 40, LeaseTTL: 2 * e.ttl, MaxAttempts: 1000,
		PublishTimeout: e.ttl, Backoff: backoff.FullJitter(5*time.Millisecond, 50*time.Millisecond),
	}
	e.Cleanup(func() { queue.bury(context.WithoutCancel(e.ctx)) })
	e.relay("one", cfg)
	e.relay("two", cfg)
	for round := range 3 {
		e.produce(l, 4, 300)
		if round == 1 {
			broker.Down(10 * time.Millisecond)
			until(e, time.Now().Add(100*time.Millisecond))
			broker.Up()
		}
		if e.Age == nil {
			until(e, time.Now().Add(e.ttl)) // what dead sessions held is free again
		}
		for queue.lost.Load() <= int64(round) { // a run without faults shows nothing
			if e.ctx.Err() != nil {
				e.TB.Fatalf("only %d sessions were lost in %v", queue.lost.Load(), limit)
			}
			e.produce(l, 4, 20)
		}
	}
	calm.Store(true)
	e.empty(broker)
	e.Logf("%d messages, %d repeats, %d sessions lost, %d completions without answer", l.n, e.audit(l, broker),
		queue.lost.Load(), queue.unanswered.Load())
}

// faulty is a Queue whose sessions die and whose answers get lost.
type faulty struct {
	driver.Queue
	calm       *atomic.Bool
	died       func(name string) // ends the holds of dead sessions of that name; nil: their time does
	lost       atomic.Int64
	unanswered atomic.Int64

	mu   sync.Mutex
	dead []driver.Session
}

func (f *faulty) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := f.Queue.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &faultySession{Session: s, queue: f, name: opts.Name}, nil
}

// bury closes the sessions that were left behind.
func (f *faulty) bury(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.dead {
		_ = s.Close(ctx)
	}
	f.dead = nil
}

// faultySession dies as a process does: it gives back no shards.
type faultySession struct {
	driver.Session
	queue *faulty
	name  string
	died  atomic.Bool
}

var errNoAnswer = errors.New("outboxtest: the connection was cut")

func (s *faultySession) fails(per1000 int) bool {
	return !s.queue.calm.Load() && rand.IntN(1000) < per1000
}

// dies reports whether the session is dead. It dies in per1000 of 1,000 calls.
func (s *faultySession) dies(per1000 int) bool {
	if s.died.Load() {
		return true
	}
	if !s.fails(per1000) {
		return false
	}
	if !s.died.Swap(true) {
		s.queue.lost.Add(1)
		if s.queue.died != nil {
			s.queue.died(s.name)
		}
	}
	return true
}

func (s *faultySession) Renew(ctx context.Context) (driver.Hold, error) {
	if s.dies(100) {
		return driver.Hold{}, driver.ErrLeaseLost
	}
	return s.Session.Renew(ctx)
}

func (s *faultySession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if s.dies(5) {
		return nil, driver.ErrLeaseLost
	}
	return s.Session.Lease(ctx, want)
}

func (s *faultySession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	switch {
	case s.died.Load():
		return driver.ErrLeaseLost
	case s.fails(30): // it never arrived
		s.queue.unanswered.Add(1)
		return errNoAnswer
	case s.fails(30): // its answer did not
		s.queue.unanswered.Add(1)
		return errors.Join(s.Session.Settle(ctx, outcomes), errNoAnswer)
	}
	return s.Session.Settle(ctx, outcomes)
}

func (s *faultySession) Close(ctx context.Context) error {
	if !s.died.Load() {
		return s.Session.Close(ctx)
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.queue.dead = append(s.queue.dead, s.Session)
	return nil
}

// Wake implements driver.Waker.
func (s *faultySession) Wake() <-chan struct{} {
	if w, ok := s.Session.(driver.Waker); ok {
		return w.Wake()
	}
	return nil
}

// Maintain implements driver.Maintainer.
func (s *faultySession) Maintain(ctx context.Context) error {
	if t, ok := s.Session.(driver.Maintainer); ok && !s.died.Load() {
		return t.Maintain(ctx)
	}
	return nil
}
