package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// enqueued is an outbox that records the enqueued messages, by the message of their scope.
type enqueued map[string][]string

func (e enqueued) enqueue(ctx context.Context, of *consumer.Message, topics ...string) error {
	msgs := make([]outbox.Message, len(topics))
	for i, topic := range topics {
		msgs[i].Topic = topic
	}
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	for _, m := range ready {
		e[of.ID] = append(e[of.ID], m.ID)
	}
	return nil
}

// threeEach enqueues three messages for m in two calls.
func (e enqueued) threeEach(ctx context.Context, m *consumer.Message) error {
	if err := e.enqueue(ctx, m, "charged", "audited"); err != nil {
		return err
	}
	return e.enqueue(ctx, m, "charged")
}

func TestOutboxIDsAreTheSameOnReExecution(t *testing.T) {
	handleEach := func(e enqueued) config {
		return config{Store: consumertest.NewStore(), Handle: func(ctx context.Context, _ tx, m *consumer.Message) error { return e.threeEach(ctx, m) }}
	}
	handleBatch := func(e enqueued) config {
		return config{Store: consumertest.NewStore(), HandleBatch: func(ctx context.Context, _ tx, msgs []*consumer.Message) error {
			for _, m := range msgs {
				if err := e.enqueue(consumer.Scope(ctx, m), m, "charged", "audited"); err != nil {
					return err
				}
			}
			for _, m := range msgs { // a second round goes on counting, also with another ctx
				if err := e.enqueue(consumer.Scope(context.WithValue(ctx, t, t), m), m, "charged"); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	one := func(t *testing.T, cfg config) {
		c := newConsumer(t, cfg)
		for i := range 4 {
			process(t, c, msg(fmt.Sprint("order-", i), "{}"))
		}
	}
	batched := func(sizes ...int) func(*testing.T, config) {
		return func(t *testing.T, cfg config) {
			c, next := newConsumer(t, cfg), 0
			for _, size := range sizes {
				var msgs []*consumer.Message
				for range size {
					msgs = append(msgs, msg(fmt.Sprint("order-", next), "{}"))
					next++
				}
				for _, err := range c.ProcessBatch(t.Context(), msgs) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	want := enqueued{}
	one(t, handleEach(want))
	if len(want) != 4 || len(want["order-0"]) != 3 || want["order-0"][0] == want["order-0"][2] ||
		want["order-0"][0] == want["order-1"][0] {
		t.Fatalf("ids: %v", want)
	}
	for _, test := range []struct {
		name string
		cfg  func(enqueued) config
		run  func(*testing.T, config)
	}{
		{"again", handleEach, one},
		{"in one batch", handleEach, batched(4)},
		{"in other batches", handleEach, batched(1, 3)},
		{"HandleBatch one by one", handleBatch, one},
		{"HandleBatch", handleBatch, batched(4)},
		{"HandleBatch in other batches", handleBatch, batched(3, 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := enqueued{}
			test.run(t, test.cfg(e))
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("hazard 33: other ids than in the first execution:\n%s", diff)
			}
		})
	}
}

func TestOutboxIDsOfARetryStartAnew(t *testing.T) {
	e, failures := enqueued{}, 2
	c := newConsumer(t, config{Store: consumertest.NewStore(), Backoff: noBackoff, Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
		clear(e) // what was enqueued before was rolled back
		if err := e.threeEach(ctx, m); err != nil {
			return err
		}
		if failures--; failures >= 0 {
			return errors.New("once more")
		}
		return nil
	}})
	process(t, c, msg("order-1", "{}"))
	want := enqueued{}
	process(t, newConsumer(t, config{Store: consumertest.NewStore(), Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
		return want.threeEach(ctx, m)
	}}), msg("order-1", "{}"))
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("hazard 33: the third attempt enqueues other ids than a first:\n%s", diff)
	}
}

func TestOutboxIDsOfAReplay(t *testing.T) {
	store, e, fail := consumertest.NewStore(), enqueued{}, true
	c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
		clear(e)
		if err := e.threeEach(ctx, m); err != nil {
			return err
		}
		if fail {
			return consumer.Permanent(errors.New("no such customer"))
		}
		return nil
	}})
	process(t, c, msg("order-1", "{}"))
	first := fmt.Sprint(e)
	fail = false
	for _, letter := range letters(t, c) {
		if _, err := c.Replay(t.Context(), letter, consumer.Replay{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(e); got != first || len(e) != 1 {
		t.Errorf("hazard 33: the replay enqueues %s, its first attempt %s", got, first)
	}
}

func TestOutboxIDsDifferBetweenConsumersAndTenants(t *testing.T) {
	seen := map[string]string{}
	for _, cfg := range []config{
		{Name: "billing"},
		{Name: "shipping"},
		{Name: "billing", Tenant: func(*consumer.Message) (string, error) { return "acme", nil }},
	} {
		e := enqueued{}
		cfg.Store = consumertest.NewStore()
		cfg.Handle = func(ctx context.Context, _ tx, m *consumer.Message) error { return e.threeEach(ctx, m) }
		process(t, newConsumer(t, cfg), msg("order-1", "{}"))
		for _, id := range e["order-1"] {
			if before, ok := seen[id]; ok {
				t.Errorf("id %s belongs to %s too", id, before)
			}
			seen[id] = cfg.Name
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d ids, want 9", len(seen))
	}
}

func TestOutboxIDsAreNeverGuessed(t *testing.T) {
	var kept context.Context
	e := enqueued{}
	for _, test := range []struct {
		name string
		cfg  config
	}{
		{"HandleBatch without Scope", config{HandleBatch: func(ctx context.Context, _ tx, msgs []*consumer.Message) error {
			return e.enqueue(ctx, msgs[0], "charged")
		}}},
		{"Scope of a message of somebody else", config{HandleBatch: func(ctx context.Context, _ tx, msgs []*consumer.Message) error {
			return e.enqueue(consumer.Scope(ctx, msg("other", "{}")), msgs[0], "charged")
		}}},
		{"HandleBatch within another handler", config{HandleBatch: func(ctx context.Context, _ tx, msgs []*consumer.Message) error {
			return e.enqueue(ctx, msgs[0], "charged")
		}}},
		{"two goroutines at once", config{Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
			_, done, err := driver.Prepare(ctx, []outbox.Message{{Topic: "charged"}})
			if err != nil {
				return fmt.Errorf("the first goroutine: %w", err)
			}
			defer done()
			other := make(chan error)
			go func() { other <- e.enqueue(ctx, m, "charged") }()
			return <-other
		}}},
		{"Scope in Handle", config{Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
			return e.enqueue(consumer.Scope(ctx, m), m, "charged")
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got error
			cfg := test.cfg
			cfg.Store = consumertest.NewStore()
			if h := cfg.Handle; h != nil {
				cfg.Handle = func(ctx context.Context, tx tx, m *consumer.Message) error {
					kept, got = ctx, h(ctx, tx, m)
					return nil
				}
			} else {
				h := cfg.HandleBatch
				cfg.HandleBatch = func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
					kept, got = consumer.Scope(ctx, msgs[0]), h(ctx, tx, msgs)
					return nil
				}
			}
			ctx, _ := driver.WithScope(t.Context(), "an outer handler's")
			if err := newConsumer(t, cfg).Process(ctx, msg("order-1", "{}")); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(got, outbox.ErrNoID) {
				t.Errorf("hazard 33: a guessed id: %v", got)
			}
			if err := e.enqueue(kept, msg("order-1", "{}"), "charged"); !errors.Is(err, outbox.ErrNoID) {
				t.Errorf("hazard 33: an id after the handler returned: %v", err)
			}
		})
	}
}

// Outgoing IDs have the time of the message's ID, so that the keys of those who consume them are in order too.
func TestOutboxIDsHaveTheTimeOfTheMessage(t *testing.T) {
	const timed = "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081"
	e := enqueued{}
	c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: func(ctx context.Context, _ tx, m *consumer.Message) error { return e.threeEach(ctx, m) }})
	process(t, c, msg(timed+"/paid", "{}"))
	process(t, c, msg("order-1", "{}"))
	for _, id := range e[timed+"/paid"] {
		if !strings.HasPrefix(id, timed[:15]) {
			t.Errorf("an ID derived from %s is %s", timed, id)
		}
	}
	for _, id := range e["order-1"] {
		if id[14] != '8' {
			t.Errorf("an ID derived from a key without a time is %s", id)
		}
	}
	if len(e) != 2 {
		t.Error(e)
	}
}
