package stripehook_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

type tx = *deduptest.Tx

const window = 40 * 24 * time.Hour

// world is a consumer with its database, and Stripe.
type world struct {
	stripe  *fakeStripe
	store   *consumertest.Store
	billing *consumer.Consumer[tx]
	since   time.Time

	fail func(*consumer.Message) error // what the handler returns; it may be nil

	mu   sync.Mutex
	runs []*consumer.Message // of the handler, in order
	ids  map[string]bool     // that the handler ever saw
}

func newWorld(t *testing.T) *world {
	w := &world{
		stripe: &fakeStripe{}, store: consumertest.NewStore(), since: time.Now().Add(-30 * 24 * time.Hour),
		ids: map[string]bool{},
	}
	w.billing = w.consumer(t, consumer.Config[tx]{Store: w.store})
	return w
}

func (w *world) consumer(t *testing.T, cfg consumer.Config[tx]) *consumer.Consumer[tx] {
	cfg.Name, cfg.Key, cfg.Window, cfg.Logger = "billing", consumer.MessageID, window, slog.New(slog.DiscardHandler)
	cfg.Handle = func(_ context.Context, tx tx, msg *consumer.Message) error {
		w.mu.Lock()
		w.runs, w.ids[msg.ID] = append(w.runs, msg), true
		w.mu.Unlock()
		if w.fail != nil {
			if err := w.fail(msg); err != nil {
				return err
			}
		}
		return tx.Add("effect of " + msg.ID)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// backfill is a Backfill of the world, as a new process has one.
func (w *world) backfill(t *testing.T, change ...func(*stripehook.BackfillConfig[tx], *stripehook.ClientConfig)) *stripehook.Backfill[tx] {
	t.Helper()
	checkpoint, err := webhook.NewCheckpoint(w.store, "stripe", window)
	if err != nil {
		t.Fatal(err)
	}
	client := stripehook.ClientConfig{
		APIKey: liveKey, Mode: stripehook.Live, HTTP: serve(t, w.stripe),
		BaseURL: "http://127.0.0.1",
	}
	cfg := stripehook.BackfillConfig[tx]{
		Verifier: newVerifier(t, stripehook.Config{}), Processor: w.billing, Checkpoint: checkpoint, Since: w.since,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg, &client)
	}
	if cfg.Client, err = stripehook.NewClient(client); err != nil {
		t.Fatal(err)
	}
	b, err := stripehook.NewBackfill(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *world) once(t *testing.T, b *stripehook.Backfill[tx]) {
	t.Helper()
	if err := b.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// took returns the messages that the handler ran since the last call.
func (w *world) took() []*consumer.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := w.runs
	w.runs = nil
	return runs
}

// effects is how many events have an effect.
func (w *world) effects() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ids {
		n += min(w.store.Database().Count("effect of "+id), 1)
	}
	return n
}

// wantEffects checks that n events have exactly one effect, and the others none.
func (w *world) wantEffects(t *testing.T, n int) {
	t.Helper()
	if got := w.effects(); got != n {
		t.Errorf("%d events have an effect, want %d", got, n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ids {
		if got := w.store.Database().Count("effect of " + id); got > 1 {
			t.Errorf("%s has %d effects", id, got)
		}
	}
}

// event is the nth event, created so long ago.
func event(n int, ago time.Duration) stripehook.Event {
	return stripehook.Event{
		ID: fmt.Sprintf("evt_%05d", n), Type: "invoice.paid", Created: time.Now().Add(-ago).Truncate(time.Second).UTC(),
		Livemode: true, Object: fmt.Sprintf("in_%d", n), APIVersion: "2026-10-01",
	}
}

// events are n events at even intervals. The newest is one interval old.
func events(n int, interval time.Duration) (all []stripehook.Event) {
	for i := range n {
		all = append(all, event(i, interval*time.Duration(n-i)))
	}
	return all
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// receive delivers e as a webhook.
func (w *world) receive(t *testing.T, cfg stripehook.Config, e stripehook.Event) *consumer.Message {
	t.Helper()
	d := delivery(e.Body(nil), stripehook.Sign(e.Body(nil), time.Now(), liveSecret))
	d.Time = time.Now()
	msg := accepted(t, newVerifier(t, cfg), d).Message
	if err := w.billing.ProcessBatch(t.Context(), []*consumer.Message{&msg})[0]; err != nil {
		t.Fatal(err)
	}
	return &msg
}

// wantLetters checks which messages are parked, by key.
func (w *world) wantLetters(t *testing.T, want ...string) {
	t.Helper()
	letters, err := w.store.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, l := range letters {
		got = append(got, l.Record.Key.ID+" "+string(l.Cause))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}
