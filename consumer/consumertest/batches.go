package consumertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// batchWait is how long claims wait in TestBatches: longer than any transaction in it, also on a busy machine.
const batchWait = time.Minute

// TestBatches runs a Consumer with handlers that end the transaction that they share with other messages, in each way
// that h lists as Misuse. Whatever the database does then, each message must have an effect or a dead letter, none may
// run twice, and no letter may be removed because of a claim that proves nothing. h is a Harness for
// deduptest.TestStore whose nodes are consumer.ParkingLots.
func TestBatches[TTx any](t *testing.T, h deduptest.Harness[TTx]) {
	for _, c := range []struct {
		name  string
		n     int
		whole bool // the consumer has a HandleBatch
		side  bool // the handlers are interleaved, if the store can do that
		fails bool // the handler that ends the transaction returns an error
	}{
		{"the first of several", 4, false, false, false},
		{"the first of several, and fails", 4, false, false, true},
		{"the first of several side by side", 4, false, true, false},
		{"the first of several side by side, and fails", 4, false, true, true},
		{"a batch handler", 4, true, false, false},
		{"alone", 1, false, false, false},
		{"alone, and fails", 1, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := h.New(t)
			if len(db.Misuse) == 0 {
				t.Fatal("the harness has no Misuse hook")
			}
			store := db.Open(t, deduptest.Options{Wait: batchWait})
			if _, interleaves := store.(driver.Interleaver[TTx]); c.side && !interleaves {
				return
			}
			for i, m := range db.Misuse {
				r := &batchRun[TTx]{
					T: t, db: db, store: store, m: m, n: c.n, whole: c.whole, side: c.side,
					fails: c.fails, name: fmt.Sprint("batch-", i),
				}
				t.Run(m.Name, func(t *testing.T) { r.T = t; r.run() })
			}
		})
	}
}

// batchRun tests one batch with one misuse of its transaction.
type batchRun[TTx any] struct {
	*testing.T
	db    deduptest.DB[TTx]
	store dedup.Store[TTx]
	m     deduptest.Misuse[TTx]
	n     int
	whole bool
	side  bool
	fails bool
	name  string // the consumer's name; all IDs begin with it

	runs atomic.Int64 // how many times the handler ran for message 0
}

var errMisuse = errors.New("consumertest: the handler fails after it misused its transaction")

func (r *batchRun[TTx]) id(i int) string { return fmt.Sprint(r.name, "-", i) }

// rest ends the name of the second effect of message 0.
const rest = " rest"

// handle writes one effect. When message 0 runs for the first time, handle then misuses the transaction, and may fail.
// When it runs again, handle writes a second effect.
func (r *batchRun[TTx]) handle(ctx context.Context, tx TTx, msg *consumer.Message) error {
	if err := r.db.Effect(ctx, tx, msg.ID); err != nil {
		return err
	}
	if msg.ID != r.id(0) {
		return nil
	}
	if r.runs.Add(1) == 1 {
		_ = r.m.Do(ctx, tx)
		if r.fails {
			return errMisuse
		}
		return nil
	}
	return r.db.Effect(ctx, tx, msg.ID+rest)
}

func (r *batchRun[TTx]) run() {
	cfg := consumer.Config[TTx]{
		Name: r.name, Store: r.store, Key: consumer.MessageID, Backoff: func(int) time.Duration { return 0 },
		Interleave: r.side,
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if _, verifies := r.store.(driver.TxVerifier[TTx]); !verifies {
		cfg.TrustHandlers = true
	}
	if r.whole {
		cfg.HandleBatch = func(ctx context.Context, tx TTx, msgs []*consumer.Message) error {
			for _, msg := range msgs {
				if err := r.handle(ctx, tx, msg); err != nil {
					return err
				}
			}
			return nil
		}
	} else {
		cfg.Handle = r.handle
	}
	c, err := consumer.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.Close)
	r.deliver(c)
	unknown := r.check(c)
	r.keep(c, len(unknown))
	r.replay(c, unknown)
}

// deliver delivers the batch, and delivers deferred messages again until every message has a final answer.
func (r *batchRun[TTx]) deliver(c *consumer.Consumer[TTx]) {
	r.Helper()
	var pending []*consumer.Message
	for i := range r.n {
		pending = append(pending, &consumer.Message{ID: r.id(i), Payload: []byte("x"), Time: time.Now(), Attempt: 1})
	}
	for round := 0; len(pending) > 0; round++ {
		if round == 20 {
			r.Fatalf("%d messages are not answered after %d deliveries", len(pending), round)
		}
		var again []*consumer.Message
		for i, err := range c.ProcessBatch(r.Context(), pending) {
			retry, ok := errors.AsType[*consumer.RetryError](err)
			switch {
			case ok && !retry.Held:
				pending[i].Attempt++
				fallthrough
			case ok:
				again = append(again, pending[i])
			case err != nil:
				r.Fatalf("%s: %v", pending[i].ID, err)
			}
		}
		pending = again
	}
}

func (r *batchRun[TTx]) effects() map[string]int {
	counts := map[string]int{}
	for _, name := range r.db.Effects(r.T) {
		counts[name]++
	}
	return counts
}

func (r *batchRun[TTx]) letters(c *consumer.Consumer[TTx]) map[string]consumer.DeadLetter {
	r.Helper()
	letters := map[string]consumer.DeadLetter{}
	for filter := (consumer.DeadLetterFilter{Limit: 2}); ; {
		page, err := c.DeadLetters(r.Context(), filter)
		if err != nil {
			r.Fatal(err)
		}
		if len(page) == 0 {
			return letters
		}
		for _, l := range page {
			if _, twice := letters[l.Record.Key.ID]; twice {
				r.Fatalf("%s is on two pages", l.Record.Key.ID)
			}
			if after := filter.After.First; !after.IsZero() && l.First.After(after) {
				r.Fatalf("%s is newer than the letter before it", l.Record.Key.ID)
			}
			letters[l.Record.Key.ID], filter.After = l, l.Cursor()
		}
	}
}

// check compares effects and letters. It returns the letters of messages that have no effect, except for message 0.
func (r *batchRun[TTx]) check(c *consumer.Consumer[TTx]) (unknown []consumer.DeadLetter) {
	r.Helper()
	effects, letters := r.effects(), r.letters(c)
	for i := range r.n {
		id := r.id(i)
		letter, parked := letters[id]
		n := effects[id]
		// If the store knows that nothing was committed, the message fails like any other.
		rolledBack := i == 0 && n == 0 && letter.Cause == observe.CausePermanent && strings.Contains(letter.Error,
			dedup.ErrRolledBack.Error())
		if parked && !rolledBack && (letter.Cause != observe.CauseUnknown || !strings.Contains(letter.Error,
			"outcome unknown") || letter.Settled) {
			r.Errorf("%s: parked as %q, settled %v: %s", id, letter.Cause, letter.Settled, letter.Error)
		}
		// The handler that ended the transaction may have committed its effects, and those of handlers that ran beside
		// it.
		switch mayBoth := i == 0 || r.whole || r.side; {
		case n > 1:
			r.Errorf("%s: %d effects", id, n)
		case n == 0 && !parked:
			r.Errorf("%s: no effect and no letter: the message is lost", id)
		case n == 1 && parked && !mayBoth:
			r.Errorf("%s: an effect and a letter", id)
		}
		if parked && i > 0 && n == 0 {
			unknown = append(unknown, letter)
		}
	}
	_, parked := letters[r.id(0)]
	runs := r.runs.Load()
	switch again := effects[r.id(0)+rest]; {
	case !parked && len(unknown) > 0:
		r.Errorf("%d messages are parked for what the handler of another one did, which is not parked", len(unknown))
	case parked && runs != 1:
		r.Errorf("the handler of the message whose outcome is unknown ran %d times", runs)
	case !parked && r.fails && again != 1: // it failed, so it must have run again
		r.Errorf("the handler failed half-way, and its message was neither tried again nor parked: %d effects, %d of its rest", effects[r.id(0)], again)
	}
	return unknown
}

// keep sweeps the whole table when nothing has expired. Dead letters whose claims prove nothing must stay.
func (r *batchRun[TTx]) keep(c *consumer.Consumer[TTx], least int) {
	r.Helper()
	purger, ok := r.store.(dedup.Purger)
	if !ok {
		return
	}
	before := len(r.letters(c))
	for range 100 {
		swept, err := purger.Purge(r.Context(), dedup.Sweep{Owner: "TestBatches", Lease: time.Hour, Limit: 1000})
		if err != nil && !r.store.Retryable(err) {
			r.Fatal(err)
		}
		if swept.Done {
			break
		}
	}
	if after := len(r.letters(c)); after != before || after < least {
		r.Errorf("%d letters after a sweep, %d before", after, before)
	}
}

// replay replays or discards the letters of messages that never ran.
func (r *batchRun[TTx]) replay(c *consumer.Consumer[TTx], unknown []consumer.DeadLetter) {
	r.Helper()
	for i, letter := range unknown {
		if ran, err := c.Replay(r.Context(), letter, consumer.Replay{}); ran ||
			!errors.Is(err, consumer.ErrOutcomeUnknown) {
			r.Fatalf("%s: replayed without AsNew: ran %v, %v", letter.Record.Key.ID, ran, err)
		}
		if i%2 == 1 {
			if err := c.Discard(r.Context(), letter); err != nil {
				r.Fatal(err)
			}
			continue
		}
		if ran, err := c.Replay(r.Context(), letter, consumer.Replay{AsNew: true}); !ran || err != nil {
			r.Fatalf("%s: replayed AsNew: ran %v, %v", letter.Record.Key.ID, ran, err)
		}
	}
	effects, letters := r.effects(), r.letters(c)
	for i, letter := range unknown {
		id := letter.Record.Key.ID
		if _, parked := letters[id]; parked || effects[id] != 1-i%2 {
			r.Errorf("%s: parked %v, %d effects, want no letter and %d", id, parked, effects[id], 1-i%2)
		}
		if errs := c.ProcessBatch(r.Context(), []*consumer.Message{&letter.Message}); errs[0] != nil {
			r.Errorf("%s: delivered again: %v", id, errs[0])
		}
	}
	if again := r.effects(); len(unknown) > 0 {
		for _, letter := range unknown {
			if id := letter.Record.Key.ID; again[id] != effects[id] {
				r.Errorf("%s: %d effects after a redelivery, before %d", id, again[id], effects[id])
			}
		}
	}
}
