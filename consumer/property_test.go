package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// world has a broker, and a database and handlers that sometimes fail, as drawn.
type world struct {
	*rapid.T
	db *deduptest.Database
	c  *consumer.Consumer[tx]
	// in order; an acknowledgement takes one out, for good: delivering it again would heal a loss
	queue  []*consumer.Message
	runs   int            // of handlers
	fails  map[string]int // transient failures still to come, by business key
	faults int            // of the database, still to come
	inject int            // faults that came
	twins  int            // keys held by another process, for one delivery each
}

// The kinds of messages.
const (
	good   = "good"
	bad    = "poison"
	swears = "swallows an SQL error"
	panics = "panics"
)

// unreliable is a store that fails now and then: before BEGIN, at COMMIT, or behind it.
type unreliable struct {
	*consumertest.Store
	w *world
}

func (u *unreliable) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	where := ""
	if u.w.faults > 0 && rapid.IntRange(0, 3).Draw(u.w.T, "fault now") == 0 {
		where = rapid.SampledFrom([]string{"begin", "rollback", "commit unknown"}).Draw(u.w.T, "where")
		u.w.faults--
		u.w.inject++
	}
	if where == "begin" {
		return errFault
	}
	err := u.Store.InTx(ctx, recs, func(tx tx, claims []dedup.Claim) error {
		err := fn(tx, claims)
		if err == nil && where == "rollback" {
			err = errFault
		}
		return err
	})
	if err == nil && where == "commit unknown" {
		err = errFault
	}
	return err
}

func (u *unreliable) Retryable(err error) bool {
	return errors.Is(err, errFault) || u.Store.Retryable(err)
}

func (w *world) handle(ctx context.Context, tx tx, m *consumer.Message) error {
	w.runs++
	if w.fails[m.ID] > 0 {
		w.fails[m.ID]--
		return errors.New("transient")
	}
	switch m.Headers["kind"] {
	case bad:
		return errPoison
	case swears:
		_ = tx.Add("")
		return nil
	case panics:
		panic("boom")
	}
	if m.OrderingKey != "" { // what was committed under it, in order
		if err := tx.Update(ctx, "order of "+m.OrderingKey,
			func(old any) any { s, _ := old.(string); return s + m.ID + " " }); err != nil {
			return err
		}
	}
	return tx.Add(m.ID)
}

func (w *world) handleBatch(ctx context.Context, tx tx, msgs []*consumer.Message) error {
	for _, m := range msgs {
		if err := w.handle(ctx, tx, m); err != nil {
			return w.named(err, m, msgs)
		}
	}
	return nil
}

// named sometimes says which message failed, and sometimes lies.
func (w *world) named(err error, m *consumer.Message, msgs []*consumer.Message) error {
	switch rapid.SampledFrom([]string{"nothing", "the truth", "another", "the last", "none", "a copy"}).Draw(w.T,
		"names") {
	case "the truth":
	case "another":
		m = msgs[rapid.IntRange(0, len(msgs)-1).Draw(w.T, "blamed")]
	case "the last":
		m = msgs[len(msgs)-1]
	case "none":
		m = nil
	case "a copy":
		m = &consumer.Message{ID: m.ID}
	default:
		return err
	}
	return &consumer.MessageError{Message: m, Err: err}
}

// deliver takes a batch from the queue, and leaves there what is not acknowledged.
func (w *world) deliver() {
	n := rapid.IntRange(1, len(w.queue)).Draw(w.T, "batch")
	batch := w.queue[:n]
	release := func() {}
	if w.twins > 0 && rapid.Bool().Draw(w.T, "twin") {
		w.twins--
		release = w.hold(batch[rapid.IntRange(0, n-1).Draw(w.T, "of")].ID)
	}
	errs := w.c.ProcessBatch(context.Background(), batch)
	release()
	var again []*consumer.Message
	for i, err := range errs {
		if err == nil {
			continue
		}
		m := *batch[i]
		retry, ok := errors.AsType[*consumer.RetryError](err)
		if !ok {
			w.Fatalf("message %s: rejected: %v", m.ID, err)
		}
		if !retry.Held {
			m.Attempt++
		}
		again = append(again, &m)
	}
	w.queue = append(again, w.queue[n:]...)
}

// hold claims id as another process would that crashes in the end.
func (w *world) hold(id string) (release func()) {
	tx, err := w.db.Begin(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.db.NewStore().Claim(context.Background(), tx,
		[]dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}}}); err != nil {
		w.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

func TestEveryMessageOnceWhateverHappens(t *testing.T) {
	injected := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, db: deduptest.NewDatabase(), fails: map[string]int{}}
		store := &unreliable{consumertest.NewStoreOn(w.db), w}
		store.Wait = 100 * time.Microsecond
		cfg := config{
			Store: store, MaxPerTransaction: rapid.IntRange(0, 2).Draw(t, "MaxPerTransaction"),
			MaxAttempts: 4, Backoff: noBackoff, ParkLimit: consumer.ParkLimit{Unlimited: true},
		}
		if rapid.Bool().Draw(t, "HandleBatch") {
			cfg.HandleBatch = w.handleBatch
		} else {
			cfg.Handle = w.handle
		}
		w.c = newConsumer(t, cfg)
		w.faults, w.twins = rapid.IntRange(0, 6).Draw(t, "faults"), rapid.IntRange(0, 3).Draw(t, "twins")

		// The messages: one content per key is the first; another one under the same key may win, and the loser is
		// parked.
		kinds := map[string]string{}
		contents := map[string]map[string]bool{}
		n := rapid.IntRange(1, 30).Draw(t, "messages")
		var sent []consumer.Message
		for i := range n {
			var m consumer.Message
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what < 3 && len(sent) > 0: // a copy
				m = sent[rapid.IntRange(0, len(sent)-1).Draw(t, "copy of")]
			case what == 3 && len(sent) > 0: // other content under an old key
				m = sent[rapid.IntRange(0, len(sent)-1).Draw(t, "mismatch of")]
				m.Payload = fmt.Appendf(nil, "other content %d", i)
			default:
				id := fmt.Sprint(i)
				m = consumer.Message{ID: id, Payload: fmt.Appendf(nil, "content %d", i)}
				kind := rapid.SampledFrom([]string{good, good, good, good, bad, swears, panics}).Draw(t, "kind")
				m.Headers, kinds[id] = map[string]string{"kind": kind}, kind
				m.OrderingKey = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "ordering key")
				if kind == good {
					w.fails[id] = rapid.IntRange(0, 2).Draw(t, "failures")
				}
				contents[id] = map[string]bool{}
			}
			contents[m.ID][string(m.Payload)] = true
			sent = append(sent, m)
			m.Position, m.Attempt = fmt.Sprint("0/", i), 1
			w.queue = append(w.queue, &m)
		}

		deliveries := 0
		for ; len(w.queue) > 0; deliveries++ {
			if deliveries > 500 {
				t.Fatalf("never acknowledged: %d messages, such as %s of kind %q", len(w.queue), w.queue[0].ID,
					kinds[w.queue[0].ID])
			}
			w.deliver()
		}
		injected += w.inject

		parked := map[string]map[string]bool{}
		found, err := w.c.DeadLetters(context.Background(), consumer.DeadLetterFilter{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found {
			if l.Settled {
				t.Fatalf("message %s is parked and processed", l.Record.Key.ID)
			}
			if parked[l.Record.Key.ID] == nil {
				parked[l.Record.Key.ID] = map[string]bool{}
			}
			parked[l.Record.Key.ID][string(l.Message.Payload)] = true
		}
		for id, kind := range kinds {
			effects, wantParked := 1, len(contents[id])-1
			if kind != good {
				effects, wantParked = 0, len(contents[id])
			}
			if n := w.db.Count(id); n != effects {
				t.Fatalf("message %s of kind %q: %d effects, want %d", id, kind, n, effects)
			}
			if n := len(parked[id]); n != wantParked {
				t.Fatalf("message %s of kind %q: %d of its %d contents parked, want %d", id, kind, n, len(contents[id]),
					wantParked)
			}
		}
		if open := w.db.Open(); open != 0 {
			t.Fatalf("%d transactions left open", open)
		}
		for _, key := range []string{"a", "b"} {
			var last int
			order, _ := w.db.Value("order of " + key).(string)
			for _, id := range strings.Fields(order) {
				n, _ := strconv.Atoi(id)
				if n < last {
					t.Fatalf("messages of ordering key %q were processed in the order %s", key, order)
				}
				last = n
			}
		}
		// Each delivery runs the remaining queue a limited number of times: once, once more for the messages next to
		// the culprits, and log n times if the culprits are unknown.
		if limit := (deliveries + 1) * n * 7; w.runs > limit {
			t.Fatalf("%d handler runs in %d deliveries of %d messages", w.runs, deliveries, n)
		}
	})
	if injected == 0 {
		t.Error("no fault was injected: this has shown nothing")
	}
}
