package webhook_test

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// pending is an outbox.Writer on the transactions of a consumertest.Store. move hands new ones to a Queue.
type pending struct {
	store *consumertest.Store
	queue *outboxtest.Memory
	moved map[string]bool
}

const pendingPrefix = "pending message "

func newPending(store *consumertest.Store) *pending {
	return &pending{store: store, queue: outboxtest.NewMemory(), moved: map[string]bool{}}
}

func (p *pending) Enqueue(ctx context.Context, tx tx, msgs ...outbox.Message) error {
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	for _, m := range ready {
		err := tx.Update(ctx, pendingPrefix+m.ID, func(old any) any {
			all, _ := old.([]outbox.Message)
			return append(slices.Clone(all), m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// committed are all messages of committed transactions, in the order of their event's ID.
func (p *pending) committed() (all []outbox.Message) {
	for _, v := range p.store.Database().Values(pendingPrefix) {
		all = append(all, v.([]outbox.Message)...)
	}
	slices.SortFunc(all, func(a, b outbox.Message) int {
		return strings.Compare(a.Headers[webhook.HeaderID], b.Headers[webhook.HeaderID])
	})
	return all
}

func (p *pending) move(t testing.TB) {
	t.Helper()
	if err := p.moveAll(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// mustMove is move for an Example.
func (p *pending) mustMove() {
	if err := p.moveAll(context.Background()); err != nil {
		panic(err)
	}
}

func (p *pending) moveAll(ctx context.Context) error {
	seen := map[string]bool{}
	return p.queue.InTx(ctx, func(tx *outboxtest.Tx) error {
		for _, m := range p.committed() {
			if seen[m.ID] {
				return fmt.Errorf("message %s was enqueued twice", m.ID)
			}
			if seen[m.ID] = true; p.moved[m.ID] {
				continue
			}
			p.moved[m.ID] = true
			if err := p.queue.Enqueue(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

func newInbox(t testing.TB, store *consumertest.Store, out outbox.Writer[tx]) *webhook.Inbox[tx] {
	t.Helper()
	if out == nil {
		out = newPending(store)
	}
	in, err := webhook.NewInbox(webhook.InboxConfig[tx]{
		Name: "billing", Store: store, Outbox: out,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func newRelay(t testing.TB, cfg relay.Config) *relay.Relay {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sender delivers each event until it is accepted, as senders do, with a growing interval.
type sender struct {
	shop *shop
	to   http.Handler
	most time.Duration // the longest interval; 0: an hour
}

// deliver returns how many deliveries it took; 0: the sender gave up.
func (s sender) deliver(t testing.TB, e shopEvent, first time.Duration, most int) int {
	t.Helper()
	wait := first
	for n := 1; n <= most; n++ {
		if s.shop.status(t, s.to, e) == 200 {
			return n
		}
		<-time.After(wait)
		wait = min(2*wait, cmp.Or(s.most, time.Hour))
	}
	return 0
}

// env is a Processor on some database.
type env struct {
	processor consumerdriver.BatchProcessor
	effects   func(id string) int
	letters   func() []consumer.DeadLetter
}

// testReplays sends captured deliveries of a hub again, with what its signature does not cover changed.
func testReplays(t *testing.T, e env) {
	h := newHub()
	r := newReceiver(t, webhook.Config{Verifier: h, Processor: e.processor, AcceptedRisks: []webhook.Risk{webhook.RiskUntimedInline}})
	for _, step := range []struct {
		name            string
		id, topic, body string
		effects         int // of this id
		letters         int
	}{
		{"an event", "a", "orders/paid", `{"order":1}`, 1, 0},
		{"its redelivery", "a", "orders/paid", `{"order":1}`, 1, 0},
		{"case 54: the same body with a new id", "b", "orders/paid", `{"order":1}`, 0, 1},
		{"case 54: the same once more", "b", "orders/paid", `{"order":1}`, 0, 1},
		{"E17: the same body under another topic", "c", "orders/updated", `{"order":1}`, 1, 1},
		{"E17: and a third one", "d", "orders/fulfilled", `{"order":1}`, 1, 1},
		{"another body", "e", "orders/paid", `{"order":2}`, 1, 1},
		{"a known id with another body", "a", "orders/paid", `{"order":3}`, 1, 2},
	} {
		wantStatus(t, do(r, h.request(t.Context(), step.id, step.topic, step.body)), 200)
		if n := e.effects("id:" + step.id); n != step.effects {
			t.Errorf("%s: %d effects, want %d", step.name, n, step.effects)
		}
		if found := e.letters(); len(found) != step.letters {
			t.Errorf("%s: %d letters, want %d: known content is kept for a person", step.name, len(found), step.letters)
		}
	}
	causes := map[observe.Cause]int{}
	for _, l := range e.letters() {
		causes[l.Cause]++
	}
	if causes[observe.CauseKnownContent] != 1 || causes[observe.CauseMismatch] != 1 {
		t.Errorf("causes %v, want one known content and one mismatch", causes)
	}
}

func newWorker(t testing.TB, cfg webhook.WorkerConfig) *webhook.Worker {
	t.Helper()
	w, err := webhook.NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// hub is a sender that signs the body and nothing else: the ID and the topic in its headers are anybody's.
type hub struct{ secret []byte }

func newHub() *hub { return &hub{[]byte("another secret of the tests.....")} }

func (*hub) Source() webhook.Source {
	return webhook.Source{Name: "hub", Horizon: 3 * 24 * time.Hour, Deadline: 10 * time.Second}
}

func (h *hub) sign(body string) string {
	mac := hmac.New(sha256.New, h.secret)
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func (h *hub) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if !hmac.Equal([]byte(d.Header.Get("Hub-Signature")), []byte(h.sign(string(d.Body)))) {
		return nil, webhook.Refuse(webhook.BadSignature, "no secret made the signature")
	}
	topic := d.Header.Get("Hub-Topic")
	content := sha256.Sum256(append([]byte(topic+"\x00"), d.Body...))
	return []webhook.Event{{Message: consumer.Message{
		ID: "id:" + d.Header.Get("Hub-Delivery"), Tenant: "hub", Topic: topic, Payload: d.Body,
		Aliases: []string{"body:" + hex.EncodeToString(content[:])},
	}}}, nil
}

func (h *hub) request(ctx context.Context, id, topic, body string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/hub", strings.NewReader(body))
	req.Header.Set("Hub-Delivery", id)
	req.Header.Set("Hub-Topic", topic)
	req.Header.Set("Hub-Signature", h.sign(body))
	return req
}
