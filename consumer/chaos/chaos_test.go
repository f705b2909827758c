package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
)

type tx = *deduptest.Tx

func newConsumer(t *testing.T, store *consumertest.Store, handle consumer.Handler[tx]) *consumer.Consumer[tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wrap(t *testing.T, p consumer.Processor, cfg chaos.Config) consumer.Processor {
	t.Helper()
	faulty, err := chaos.Wrap(p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return faulty
}

// deliver calls p as a Subscriber does. panicked says that the program would have ended.
func deliver(ctx context.Context, p consumer.Processor, msgs []*consumer.Message) (errs []error, panicked bool) {
	defer func() { panicked = recover() != nil }()
	if b, ok := p.(driver.BatchProcessor); ok {
		return b.ProcessBatch(ctx, msgs), false
	}
	return []error{p.Process(ctx, msgs[0])}, false
}

// On a bad day each message still has one effect, in the order of its key, and each kind of fault happens.
func TestEffectsOnABadDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		var failed sync.Map
		c := newConsumer(t, store, func(ctx context.Context, tx tx, m *consumer.Message) error {
			if _, before := failed.LoadOrStore(m.ID, true); !before && strings.HasSuffix(m.ID, "7") {
				return errors.New("not now") // some fail by themselves, too
			}
			return errors.Join(tx.Add("effect of "+m.ID), tx.Update(ctx, m.OrderingKey, func(last any) any {
				if last, ok := last.(time.Time); ok && m.Time.Before(last) {
					t.Errorf("%s is handled behind a later message of its key", m.ID)
				}
				return m.Time
			}))
		})
		seen := &watching{consumers: c, had: map[string]bool{}}
		p := wrap(t, seen, chaos.Config{Seed: 1, Duplicate: .2, LoseAck: .2, Panic: .1, Delay: time.Second})
		var waiting []*consumer.Message
		for i := range 1000 {
			waiting = append(waiting, &consumer.Message{
				ID: fmt.Sprint("m", i), OrderingKey: fmt.Sprint("key ", i%7), Time: time.Now().Add(time.Duration(i)),
			})
		}
		began := time.Now()
		lost, panics := 0, 0
		for rounds := 0; len(waiting) > 0; rounds++ {
			if rounds > 10000 {
				t.Fatalf("%d messages are never acknowledged", len(waiting))
			}
			batch := waiting[:min(10, len(waiting))]
			errs, panicked := deliver(t.Context(), p, batch)
			var again []*consumer.Message
			for i, m := range batch {
				switch {
				case panicked:
					panics++
				case errs[i] == nil:
					continue
				case errors.Is(errs[i], chaos.ErrAckLost):
					lost++
				}
				again = append(again, m)
			}
			waiting = append(again, waiting[len(batch):]...)
		}
		for i := range 1000 {
			if n := store.Database().Count(fmt.Sprint("effect of m", i)); n != 1 {
				t.Errorf("message %d has %d effects", i, n)
			}
		}
		if lost == 0 || panics == 0 || seen.repeats == 0 || seen.atOnce == 0 || time.Since(began) < 10*time.Second {
			t.Errorf("%d acks lost, %d messages of panics, %d copies afterwards, %d at the same time, %v: is each fault tried?",
				lost, panics, seen.repeats, seen.atOnce, time.Since(began))
		}
	})
}

type consumers interface {
	consumer.Processor
	driver.BatchProcessor
	driver.Starter
	driver.Sourced
	driver.Keyed
	driver.Windowed
	driver.Positioned
	MaxAttempts() int
}

// watching counts the calls that deliver what another call has delivered, or delivers.
type watching struct {
	consumers
	mu              sync.Mutex
	had             map[string]bool
	calls           int
	repeats, atOnce int
}

func (w *watching) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	w.mu.Lock()
	if w.calls++; w.calls > 1 {
		w.atOnce++
	}
	if w.had[msgs[0].ID] {
		w.repeats++
	}
	w.mu.Unlock()
	errs := w.consumers.ProcessBatch(ctx, msgs)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls--
	for i, m := range msgs {
		w.had[m.ID] = w.had[m.ID] || errs[i] == nil
	}
	return errs
}

// answering answers each message with what it has for its ID.
type answering map[string]error

func (a answering) Process(_ context.Context, m *consumer.Message) error { return a[m.ID] }

// A failure never becomes an acknowledgement, whatever else happens.
func TestFailuresStay(t *testing.T) {
	rejected := errors.New("rejected")
	retry := &consumer.RetryError{Err: errors.New("later")}
	a := answering{"fine": nil, "rejected": rejected, "retry": retry}
	acks := 0
	for seed := range uint64(300) {
		p := wrap(t, a, chaos.Config{Seed: seed + 1, Duplicate: .5, LoseAck: .3, Panic: .2})
		for id, want := range a {
			errs, panicked := deliver(t.Context(), p, []*consumer.Message{{ID: id}})
			switch {
			case panicked:
			case want != nil && !errors.Is(errs[0], want):
				t.Fatalf("seed %d: the answer to %s is %v, want %v", seed, id, errs[0], want)
			case errs[0] == nil:
				acks++
			}
		}
	}
	if acks == 0 {
		t.Error("nothing is ever acknowledged")
	}
}

// When the acknowledgement of a message is lost, the later ones of its key are delivered again too, and no others.
func TestLostAcksKeepTheOrder(t *testing.T) {
	c := newConsumer(t, consumertest.NewStore(), func(context.Context, tx, *consumer.Message) error { return nil })
	lost := 0
	for seed := range uint64(100) {
		p := wrap(t, c, chaos.Config{Seed: seed + 1, LoseAck: .2})
		var msgs []*consumer.Message
		for i := range 9 {
			key := []string{"a", "b", ""}[i%3]
			msgs = append(msgs, &consumer.Message{ID: fmt.Sprint(seed, "/", i), OrderingKey: key})
		}
		errs, _ := deliver(t.Context(), p, msgs)
		behind := map[string]bool{}
		for i, m := range msgs {
			retry, failed := errors.AsType[*consumer.RetryError](errs[i])
			if failed && !retry.Held {
				t.Errorf("seed %d: message %d counts as an attempt: %v", seed, i, errs[i])
			}
			if behind[m.OrderingKey] && !failed {
				t.Errorf("seed %d: message %d is acknowledged, and one before it is not", seed, i)
			}
			if failed {
				lost++
				behind[m.OrderingKey] = m.OrderingKey != ""
			}
		}
	}
	if lost < 200 || lost > 500 {
		t.Errorf("%d of 900 acknowledgements are lost", lost)
	}
}

// The same seed chooses the same faults, and another one others.
func TestSeed(t *testing.T) {
	day := func(seed uint64) (log string) {
		p := wrap(t, answering{}, chaos.Config{Seed: seed, Duplicate: .3, LoseAck: .3, Panic: .3})
		for range 50 {
			errs, panicked := deliver(t.Context(), p, []*consumer.Message{{ID: "m"}})
			log += fmt.Sprintln(errs, panicked)
		}
		return log
	}
	first := day(1)
	if again := day(1); again != first {
		t.Error("two runs with seed 1 differ")
	}
	if day(2) == first {
		t.Error("seeds 1 and 2 choose the same faults")
	}
}

// A delay ends with the context, and nothing is processed then.
func TestDelayEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := false
		c := newConsumer(t, consumertest.NewStore(), func(context.Context, tx, *consumer.Message) error {
			called = true
			return nil
		})
		p := wrap(t, c, chaos.Config{Delay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := p.Process(ctx, &consumer.Message{ID: "m"})
		if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held || called {
			t.Errorf("Process = %v, handled %v", err, called)
		}
	})
}

// The wrapped Consumer has what Subscribers look for, and a Processor without it does not get it.
func TestSubscribersFindTheConsumer(t *testing.T) {
	c := newConsumer(t, consumertest.NewStore(), func(context.Context, tx, *consumer.Message) error { return nil })
	p := wrap(t, c, chaos.Config{})
	all, ok := p.(consumers)
	if !ok {
		t.Fatal("a faulty Consumer lacks a method that Subscribers use")
	}
	if all.Window() != c.Window() || all.MaxAttempts() != c.MaxAttempts() || all.Start(t.Context()) != nil {
		t.Error("a faulty Consumer answers otherwise")
	}
	if _, batches := wrap(t, answering{}, chaos.Config{}).(driver.BatchProcessor); batches {
		t.Error("a Processor that takes single messages gets batches")
	}
}

type half struct{ answering }

func (half) Window() time.Duration { return time.Hour }

func TestWrapRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		p    consumer.Processor
		cfg  chaos.Config
		says string
	}{
		{"no processor", nil, chaos.Config{}, "processor is nil"},
		{"a nil Consumer", (*consumer.Consumer[tx])(nil), chaos.Config{}, "processor is nil"},
		{"half a Consumer", half{}, chaos.Config{}, "chaos_test.half has Window, but not ProcessBatch and Start and AddSource"},
		{"a negative part", answering{}, chaos.Config{Duplicate: -.1}, "Config.Duplicate is -0.1"},
		{"more than all", answering{}, chaos.Config{Panic: 1.5}, "Config.Panic is 1.5"},
		{"no number", answering{}, chaos.Config{LoseAck: math.NaN()}, "Config.LoseAck is NaN"},
		{"all acks", answering{}, chaos.Config{LoseAck: 1}, "Config.LoseAck is 1: no message"},
		{"all calls", answering{}, chaos.Config{Panic: 1}, "Config.Panic is 1: no message"},
		{"a negative delay", answering{}, chaos.Config{Delay: -1}, "Config.Delay is -1ns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := chaos.Wrap(test.p, test.cfg); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want an error that says %q", err, test.says)
			}
		})
	}
}
