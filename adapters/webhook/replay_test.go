package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/observe"
)

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
		ID: "id:" + d.Header.Get("Hub-Delivery"), Tenant: "hub", Topic: topic, Payload: d.Body, Aliases: []string{"body:" + hex.EncodeToString(content[:])},
	}}}, nil
}

func (h *hub) request(ctx context.Context, id, topic, body string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/hub", strings.NewReader(body))
	req.Header.Set("Hub-Delivery", id)
	req.Header.Set("Hub-Topic", topic)
	req.Header.Set("Hub-Signature", h.sign(body))
	return req
}

// env is a Processor on some database.
type env struct {
	processor consumer.BatchProcessor
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

func TestKnownContent(t *testing.T) {
	t.Run("inline", func(t *testing.T) {
		store := consumertest.NewStore()
		c := billing(t, consumer.Config[tx]{Store: store})
		testReplays(t, env{c, store.Database().Count, func() []consumer.DeadLetter { return letters(t, c) }})
	})
	t.Run("stored and forwarded", func(t *testing.T) {
		store := consumertest.NewStore()
		out := newPending(store)
		in := newInbox(t, store, out)
		testReplays(t, env{in, func(id string) (n int) {
			for _, m := range out.committed() {
				if m.Headers[webhook.HeaderID] == id {
					n++
				}
			}
			return n
		}, func() []consumer.DeadLetter { return letters(t, in.Consumer()) }})
	})
	t.Run("a person decides", func(t *testing.T) {
		h, store := newHub(), consumertest.NewStore()
		out := newPending(store)
		in := newInbox(t, store, out)
		r := newReceiver(t, webhook.Config{Verifier: h, Processor: in, Logger: slog.New(slog.DiscardHandler)})
		for _, id := range []string{"a", "b"} {
			wantStatus(t, do(r, h.request(t.Context(), id, "push", `{}`)), 200)
		}
		if ran, err := in.Consumer().Replay(t.Context(), letters(t, in.Consumer())[0], consumer.Replay{AsNew: true}); !ran || err != nil {
			t.Errorf("Replay: %v, %v", ran, err)
		}
		if n := len(out.committed()); n != 2 {
			t.Errorf("%d events forwarded, want both", n)
		}
	})
}
