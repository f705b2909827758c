package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// Run's context ends in the middle of a batch: calls under way are finished and settled, no other begins, and the
// shards are free at once.
func TestRelayDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// so fast that a2 would follow in the same batch
		memory, p := outboxtest.NewMemory(), &recorder{Publisher: slow(60 * time.Millisecond)}
		enqueueIDs(t, memory, "a1", "a2", "b1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p})
		began := time.Now()
		<-time.After(30 * time.Millisecond)
		stop()
		if took := time.Since(began); took != 60*time.Millisecond {
			t.Errorf("drained after %v, want 60ms", took)
		}
		if diff := cmp.Diff([][]string{{"a1", "b1"}}, p.Calls()); diff != "" {
			t.Error(diff)
		}
		if st, err := memory.Stats(t.Context()); err != nil || st.Pending != 1 || len(st.Relays) != 0 {
			t.Errorf("%+v, %v: want a2 pending, and no relay", st, err)
		}
	})
}

// Neither a broker nor a database that hangs keeps Run from returning within LeaseTTL.
func TestRelayDrainIsBounded(t *testing.T) {
	for _, test := range []struct {
		name  string
		p     outbox.Publisher
		fails []string
		want  time.Duration
	}{
		{"publisher hangs until its deadline", slow(time.Hour), nil, 10 * time.Second},
		{"settle fails", new(outboxtest.FakePublisher), []string{"settle"}, 30 * time.Second},
		{"settle and renew fail", new(outboxtest.FakePublisher), []string{"settle", "renew"}, 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				queue := &faulty{Queue: memory}
				enqueueIDs(t, memory, "a1")
				_, stop := start(t, relay.Config{Queue: memory, Publisher: test.p})
				stop()
				_, stop = start(t, relay.Config{Queue: queue, Publisher: test.p})
				queue.failing(errFault, test.fails...)
				enqueueIDs(t, memory, "b1")
				synctest.Wait()
				began := time.Now()
				stop()
				if took := time.Since(began); took > test.want {
					t.Errorf("drained after %v, want %v at the most", took, test.want)
				}
			})
		})
	}
}

// A database that stalls gets time to take the shards back, because other relays would otherwise wait until the hold
// expires. It does not get more than the rest of LeaseTTL.
func TestRelayGivesBackWhileTheDatabaseStalls(t *testing.T) {
	for _, test := range []struct {
		name           string
		ttl            time.Duration
		settles, stall time.Duration
		want           time.Duration
		relays         int // left behind, unless their hold has run out
	}{
		{"for a while", 30 * time.Second, 0, 9 * time.Second, 9 * time.Second, 0},
		{"for good", 30 * time.Second, 0, time.Hour, 10 * time.Second, 1},
		{"for good, and the lease is short", time.Second, 0, time.Hour, 2 * time.Second, 0},
		{"for good, after a long drain", 30 * time.Second, 25 * time.Second, time.Hour, 30 * time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				queue := &faulty{Queue: memory}
				queue.set(func(op string) error {
					if op == "settle" {
						<-time.After(test.settles)
					}
					return nil
				})
				enqueueIDs(t, memory, "a1")
				_, stop := start(t, relay.Config{Queue: stalling{queue, test.stall}, Publisher: new(outboxtest.FakePublisher), LeaseTTL: test.ttl})
				began := time.Now()
				stop()
				if took := time.Since(began); took != test.want {
					t.Errorf("stopped after %v, want %v", took, test.want)
				}
				if st, err := memory.Stats(t.Context()); err != nil || st.Pending != 0 ||
					len(st.Relays) != test.relays {
					t.Errorf("%+v, %v: want nothing pending, and %d relays", st, err, test.relays)
				}
			})
		})
	}
}

// stalling is a Queue whose sessions are slow to close.
type stalling struct {
	driver.Queue
	stall time.Duration
}

func (q stalling) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return stallingSession{s, q.stall}, err
}

type stallingSession struct {
	driver.Session
	stall time.Duration
}

func (s stallingSession) Close(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.stall):
		return s.Session.Close(ctx)
	}
}

// plain is a Queue whose sessions have no optional methods.
type plain struct{ driver.Queue }

func (q plain) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return struct{ driver.Session }{s}, err
}

func TestRelayWakesAtOnce(t *testing.T) {
	const never = 24 * time.Hour
	for _, test := range []struct {
		name  string
		queue func(m *outboxtest.Memory) driver.Queue
		wake  func(r *relay.Relay)
	}{
		{"by its queue", func(m *outboxtest.Memory) driver.Queue { return m }, func(*relay.Relay) {}},
		{"by Wake", func(m *outboxtest.Memory) driver.Queue { return plain{m} }, (*relay.Relay).Wake},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
				r, stop := start(t, relay.Config{
					Queue: test.queue(memory), Publisher: broker, PollMin: never,
					PollMax: never,
				})
				<-time.After(time.Hour)
				began := time.Now()
				enqueueIDs(t, memory, "a1")
				test.wake(r)
				synctest.Wait()
				if p := broker.Published(); len(p) != 1 || !p[0].At.Equal(began) {
					t.Errorf("published %v, want a1 at once", p)
				}
				stop()
			})
		})
	}
}

// The wake-up comes while the key's shard has something in flight: the message is published as soon as that batch is
// settled.
func TestRelayRemembersAWakeUpDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const never = 24 * time.Hour
		memory, broker := outboxtest.NewMemory(), slow(time.Second)
		began := time.Now()
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, PollMin: never, PollMax: never})
		enqueueIDs(t, memory, "a1")
		<-time.After(time.Second / 2)
		enqueueIDs(t, memory, "a2")
		<-time.After(2 * time.Second)
		p := broker.Published()
		if len(p) != 2 || p[1].At.Sub(began) != 2*time.Second {
			t.Errorf("published %v, want a2 2s after the start", p)
		}
		stop()
	})
}

// Without wake-ups, polls find every message within PollMax, and sooner when there were messages a moment ago. Polls
// are rare when there are none.
func TestRelayPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		queue := &faulty{Queue: memory}
		_, stop := start(t, relay.Config{Queue: plain{queue}, Publisher: broker})
		<-time.After(10 * time.Second)
		before := queue.count("lease")
		<-time.After(time.Minute)
		if n := queue.count("lease") - before; n < 59 || n > 61 {
			t.Errorf("%d polls in an idle minute, want one a second", n)
		}
		for i, within := range []time.Duration{relay.DefaultPollMax, relay.DefaultPollMin, relay.DefaultPollMin} {
			enqueueIDs(t, memory, fmt.Sprintf("a%d", i))
			began := time.Now()
			for len(broker.Published()) == i && time.Since(began) < time.Minute {
				<-time.After(time.Millisecond)
				synctest.Wait()
			}
			if took := time.Since(began); took > within {
				t.Errorf("message %d took %v, want at most %v", i, took, within)
			}
		}
		stop()
	})
}

func TestRelayIdleLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := &faulty{Queue: outboxtest.NewMemory()}
		_, stop := start(t, relay.Config{Queue: queue, Publisher: new(outboxtest.FakePublisher)})
		<-time.After(10 * time.Second)
		before := queue.total()
		<-time.After(10 * time.Minute)
		if n := queue.total() - before; n > 3*600 {
			t.Errorf("%d calls in ten idle minutes, more than 3 a second", n)
		}
		if queue.count("maintain") < 600 || queue.count("renew") < 60 {
			t.Errorf("%d upkeeps, %d renewals: want them though nothing happens", queue.count("maintain"),
				queue.count("renew"))
		}
		stop()
	})
}

func TestRelayRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), refusing("a2", errRefused, 1)
		var want []string
		for i := range 250 {
			want = append(want, fmt.Sprintf("k%d", i))
		}
		enqueueIDs(t, memory, want...)
		enqueueIDs(t, memory, "a1", "a2", "a3")
		later := msg("z1")
		later.NotBefore = time.Now().Add(time.Hour)
		enqueue(t, memory, later)
		r := newRelay(t, relay.Config{
			Queue: memory, Publisher: broker, BatchSize: 10, Workers: 3,
			Backoff: fixed(time.Minute),
		})
		if n, err := r.RunOnce(t.Context()); n != 251 || err != nil {
			t.Errorf("RunOnce = %d, %v, want 251: all but a2, a3 and z1", n, err)
		}
		got := slices.DeleteFunc(arrived(broker), func(id string) bool { return id[0] != 'k' })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if st, _ := memory.Stats(t.Context()); len(st.Relays) != 0 {
			t.Errorf("it left its session open: %+v", st.Relays)
		}
		<-time.After(time.Minute)
		if n, err := r.RunOnce(t.Context()); n != 2 || err != nil {
			t.Errorf("after the backoff RunOnce = %d, %v, want 2", n, err)
		}
		if n, err := r.RunOnce(t.Context()); n != 0 || err != nil {
			t.Errorf("with nothing to do RunOnce = %d, %v", n, err)
		}
		<-time.After(time.Hour)
		if n, err := r.RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("an hour later RunOnce = %d, %v, want 1", n, err)
		}
	})
}

// An error of RunOnce means that there may be more messages.
func TestRelayRunOnceFails(t *testing.T) {
	down := new(outboxtest.FakePublisher)
	down.Down(0)
	unavailable := func(err error) bool { var u *outbox.UnavailableError; return errors.As(err, &u) }
	fault := func(err error) bool { return errors.Is(err, errFault) }
	for _, test := range []struct {
		name  string
		cfg   relay.Config
		fails string
		err   error
		n     int
		is    func(error) bool
	}{
		{"open", relay.Config{}, "open", errFault, 0, fault},
		{"renew", relay.Config{}, "renew", errFault, 0, fault},
		{"lease", relay.Config{}, "lease", errFault, 0, fault},
		{
			"settle",
			relay.Config{},
			"settle", driver.ErrLeaseLost, 0,
			func(err error) bool { return errors.Is(err, driver.ErrLeaseLost) },
		},
		{"unavailable", relay.Config{Publisher: down}, "", nil, 0, unavailable},
		{
			"one of two unavailable",
			relay.Config{Publishers: map[string]outbox.Publisher{"down": down}},
			"", nil, 2,
			unavailable,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				queue := &faulty{Queue: memory}
				queue.failing(test.err, test.fails)
				test.cfg.Queue = queue
				if test.cfg.Publisher == nil {
					test.cfg.Publisher = new(outboxtest.FakePublisher)
				}
				enqueue(t, memory, msg("a1"), to("down", "b1"), msg("c1"))
				if n, err := newRelay(t, test.cfg).RunOnce(t.Context()); n != test.n || !test.is(err) {
					t.Errorf("RunOnce = %d, %v", n, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), slow(time.Second)
		enqueueIDs(t, memory, "a1", "a2", "a3")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: broker}).RunOnce(ctx); n != 2 ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RunOnce = %d, %v, want what was under way when its context ended", n, err)
		}
	})
}

func TestRelayTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		var got []string
		note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
		broker := &outboxtest.FakePublisher{Decide: func(m outbox.Message) (f outboxtest.Fate) {
			f.Delay = time.Second
			if m.ID == "c1" {
				f.Err = errRefused
			}
			return f
		}}
		enqueueIDs(t, memory, "a1")
		<-time.After(time.Minute)
		enqueueIDs(t, memory, "b1", "c1", "c2")
		type key struct{}
		trace := &relay.Trace{
			Start: func(ctx context.Context, p *relay.Publishing) context.Context {
				return context.WithValue(ctx, key{}, len(p.Messages))
			},
			Published: func(ctx context.Context, p *relay.Publishing, errs []error) {
				note("%s published %d %d %v", p.Relay, ctx.Value(key{}), len(p.Messages), errs)
			},
			Settled: func(_ context.Context, messages []relay.Settlement) {
				for _, s := range messages {
					note("%s %s %s %s %v %v", s.Relay, s.Message.ID, s.Outcome, s.Cause, s.After, s.Err)
				}
			},
			Lease: func(_ context.Context, e relay.LeaseEvent) {
				note("%s lease %s %d/%d", e.Relay, e.Kind, e.Hold.Shards, e.Hold.TotalShards)
			},
		}
		r := newRelay(t, relay.Config{
			Name: "r", Queue: memory, Publisher: broker, Backoff: fixed(time.Hour),
			Trace: trace,
		})
		if n, err := r.RunOnce(t.Context()); n != 2 || err != nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		if diff := cmp.Diff([]string{
			"r lease taken 64/64",
			"r published 3 3 [<nil> <nil> the broker refuses this message]",
			"r a1 processed  0s <nil>",
			"r b1 processed  0s <nil>",
			"r c1 retried handler 1h0m0s the broker refuses this message",
			"r c2 held cancelled 0s <nil>",
		}, got); diff != "" {
			t.Error(diff)
		}
	})
}
