// Package opstest has the suite for what stores do for operators: ops.Store and driver.ReplayQueue.
package opstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
)

// store is one node.
type store[TTx any] struct {
	dedup.Store[TTx]
	driver.ReplayQueue[TTx]
	dedupdriver.KeyReader
	operator
}

type operator interface {
	Operator() ops.Store
	Activity() ops.ActivityKeeper
}

// TestStore runs the suite. The stores of h must be a driver.ReplayQueue, a driver.KeyReader, a dedup.Purger, an
// outbox.Writer and an driver.Queue, and have the methods Operator and Activity. Each case is a sub-test on its own
// database.
func TestStore[TTx any](t *testing.T, h deduptest.Harness[TTx]) {
	for _, c := range slices.Concat(statusCases[TTx](), probeCases[TTx](), replayCases[TTx](), besideCases[TTx](),
		stalledCases[TTx](), requestCases[TTx](), explainCases[TTx](), repairCases[TTx](), planCases[TTx](),
		parkedCases[TTx](), activityCases[TTx](), positionCases[TTx]()) {
		if h.Select != nil && !h.Select(c.name, "") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, &env[TTx]{DB: h.New(t), oneWriter: h.OneWriter})
		})
	}
}

type testCase[TTx any] struct {
	name string
	run  func(t *testing.T, e *env[TTx])
}

// env is the database of one case.
type env[TTx any] struct {
	deduptest.DB[TTx]
	oneWriter bool
}

const (
	name    = "billing"
	patient = 2 * time.Minute
)

// node opens another node on the database.
func (e *env[TTx]) node(t *testing.T) store[TTx] {
	t.Helper()
	return e.open(t, deduptest.Options{Wait: patient})
}

func (e *env[TTx]) open(t *testing.T, o deduptest.Options) store[TTx] {
	t.Helper()
	s := e.Open(t, o)
	queue, isQueue := s.(driver.ReplayQueue[TTx])
	reader, isReader := s.(dedupdriver.KeyReader)
	op, isOperator := s.(operator)
	if !isQueue || !isReader || !isOperator {
		t.Fatalf("%T is a ReplayQueue: %v, is a KeyReader: %v, has Operator: %v", s, isQueue, isReader, isOperator)
	}
	return store[TTx]{s, queue, reader, op}
}

var errBroken = errors.New("the deployment is broken")

// consumer returns a Consumer. handle decides whether a message fails; nil: none does.
func (e *env[TTx]) consumer(t *testing.T, s store[TTx],
	handle func(msg *consumer.Message) error,
) *consumer.Consumer[TTx] {
	t.Helper()
	return e.named(t, s, name, handle)
}

func (e *env[TTx]) named(t *testing.T, s store[TTx], name string,
	handle func(msg *consumer.Message) error,
) *consumer.Consumer[TTx] {
	t.Helper()
	cfg := e.config(s, handle)
	cfg.Name = name
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (e *env[TTx]) config(s store[TTx], handle func(msg *consumer.Message) error) consumer.Config[TTx] {
	return consumer.Config[TTx]{
		Name: name, Store: s.Store, Key: consumer.MessageID,
		Tenant:    func(m *consumer.Message) (string, error) { return m.Headers["tenant"], nil },
		ParkLimit: consumer.ParkLimit{Unlimited: true},
		Backoff:   func(int) time.Duration { return 10 * time.Millisecond }, Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx TTx, msg *consumer.Message) error {
			if handle != nil {
				if err := handle(msg); err != nil {
					return err
				}
			}
			return e.Effect(ctx, tx, msg.ID)
		},
	}
}

func message(id, topic string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: topic, OrderingKey: "key " + id, Position: topic + "/0/" + id,
		Payload: []byte("payload of " + id), Time: time.Now(),
	}
}

// park parks messages because their handler fails.
func (e *env[TTx]) park(t *testing.T, s store[TTx], msgs ...*consumer.Message) {
	t.Helper()
	c := e.consumer(t, s, func(*consumer.Message) error { return consumer.Permanent(errBroken) })
	defer c.Close()
	for _, m := range msgs {
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
}

func messages(n int) (msgs []*consumer.Message) {
	for i := range n {
		msgs = append(msgs, message(fmt.Sprintf("order-%03d", i), "orders"))
	}
	return msgs
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	return ctx
}

func (e *env[TTx]) letters(t *testing.T, s store[TTx]) []consumer.DeadLetter {
	t.Helper()
	found, err := s.Operator().DeadLetters(bounded(t), consumer.DeadLetterFilter{Consumer: name, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantEffects fails unless the effects are one for each of ids.
func (e *env[TTx]) wantEffects(t *testing.T, ids ...string) {
	t.Helper()
	got := e.Effects(t)
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("effects %q, want %q", got, ids)
	}
}

// replayRequest asks for a replay of all letters.
func replayRequest() ops.Request {
	return ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-17 is over",
		Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: -1,
	}
}

func request(t *testing.T, s ops.Store, r ops.Request) ops.Action {
	t.Helper()
	a, err := s.Request(bounded(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// replay runs the Replayers of consumers until the action has ended.
func replay[TTx any](t *testing.T, s ops.Store, action ops.ActionID, consumers ...*consumer.Consumer[TTx]) ops.Action {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	running := make(chan error, len(consumers))
	for _, c := range consumers {
		go func() { running <- c.RunReplays(ctx) }()
	}
	a := waitForEnd(t, s, action)
	cancel()
	for range consumers {
		if err := <-running; err != nil {
			t.Error(err)
		}
	}
	return a
}

// waitForEnd waits until an action has ended.
func waitForEnd(t *testing.T, s ops.Store, action ops.ActionID) ops.Action {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for ctx := bounded(t); ; {
		found, err := s.Actions(ctx, ops.ActionFilter{ID: action})
		if err != nil || len(found) != 1 {
			t.Fatalf("%d actions, %v", len(found), err)
		}
		if !found[0].Ended.IsZero() {
			return found[0]
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the action does not end: %+v", found[0])
		}
	}
}

// requested is a dead letter that TakeReplay has returned.
type requested struct {
	dedupdriver.RequestedReplay
	Letter consumer.DeadLetter
}

// take calls TakeReplay.
func take[TTx any](ctx context.Context, s store[TTx], name string,
	lease time.Duration,
) (r requested, found bool, wait time.Duration, err error) {
	how, letter, wait, err := s.TakeReplay(ctx, name, lease)
	if how != nil {
		r = requested{*how, letter}
	}
	return r, how != nil, wait, err
}
