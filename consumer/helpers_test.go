package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

type (
	tx     = *deduptest.Tx
	config = consumer.Config[tx]
)

// effect is a handler that counts one effect under the message's ID.
func effect(_ context.Context, tx tx, m *consumer.Message) error { return tx.Add(m.ID) }

// newConsumer fills in the required fields that a test left empty.
func newConsumer(t rapid.TB, cfg config) *consumer.Consumer[tx] {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "billing"
	}
	if cfg.Key == nil {
		cfg.Key = consumer.MessageID
	}
	if cfg.Handle == nil && cfg.HandleBatch == nil {
		cfg.Handle = effect
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.RejectGivenUp, cfg.TrustHandlers = lacks(cfg.Store)
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lacks reports whether store keeps no dead letters, and whether it cannot verify transactions.
func lacks(store dedup.Store[tx]) (letters, verification bool) {
	_, parks := store.(consumerdriver.ParkingLot[tx])
	_, verifies := store.(driver.TxVerifier[tx])
	return !parks, !verifies
}

func msg(id, payload string) *consumer.Message {
	return &consumer.Message{ID: id, Payload: []byte(payload), Topic: "orders", Position: "orders/0/" + id, Attempt: 1}
}

func process(t testing.TB, c *consumer.Consumer[tx], m *consumer.Message) {
	t.Helper()
	if err := c.Process(context.Background(), m); err != nil {
		t.Errorf("Process(%s): %v", m.ID, err)
	}
}

func letters(t testing.TB, c *consumer.Consumer[tx]) []consumer.DeadLetter {
	t.Helper()
	found, err := c.DeadLetters(context.Background(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantCount(t testing.TB, db *deduptest.Database, id string, want int) {
	t.Helper()
	if n := db.Count(id); n != want {
		t.Errorf("%d effects of %q, want %d", n, id, want)
	}
}

// wantRetry checks that err asks for another delivery.
func wantRetry(t testing.TB, err error, uncounted bool) *consumer.RetryError {
	t.Helper()
	retry, ok := errors.AsType[*consumer.RetryError](err)
	if !ok {
		t.Fatalf("err = %v, want a *RetryError", err)
	}
	if retry.Held != uncounted {
		t.Errorf("uncounted = %v, want %v (%v)", retry.Held, uncounted, err)
	}
	return retry
}

// faulty is a store whose transactions fail with errors of the test.
type faulty struct {
	*consumertest.Store
	before func() error // fails instead of InTx
	rolls  func() error // fails after the handler, instead of COMMIT
	after  func() error // loses the answer of COMMIT
}

var errFault = errors.New("fault of the database")

func (f *faulty) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	if f.before != nil {
		if err := f.before(); err != nil {
			return err
		}
	}
	err := f.Store.InTx(ctx, recs, func(tx tx, claims []dedup.Claim) error {
		err := fn(tx, claims)
		if err == nil && f.rolls != nil {
			err = f.rolls()
		}
		return err
	})
	if err == nil && f.after != nil {
		err = f.after()
	}
	return err
}

func (f *faulty) Retryable(err error) bool { return errors.Is(err, errFault) || f.Store.Retryable(err) }

// times returns a func that returns err that many times.
func times(n int, err error) func() error {
	return func() error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

// events records the calls of a Trace: "claimed id", an outcome such as "processed id" or "held(in_flight) id",
// "paused" and "resumed".
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, name)
}

func (e *events) trace() *consumer.Trace {
	return &consumer.Trace{
		Claimed: func(_ context.Context, _ *consumer.Delivery, msgs []*consumer.Message) {
			for _, m := range msgs {
				e.add("claimed " + m.ID)
			}
		},
		Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			for i, o := range outcomes {
				name := string(o.Outcome)
				if o.Cause != "" {
					name += "(" + string(o.Cause) + ")"
				}
				e.add(name + " " + d.Messages[i].ID)
			}
		},
		Paused:  func(context.Context, observe.Pause) { e.add("paused") },
		Resumed: func(context.Context, observe.Pause) { e.add("resumed") },
	}
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.all = nil }()
	return slices.Clone(e.all)
}

func (e *events) count(prefix string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range e.all {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// logs is a Logger's output.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logs) lines(containing string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

func noBackoff(int) time.Duration { return time.Microsecond }
