package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

type tx = *deduptest.Tx

// shop is a sender for tests: the body is a list of shopEvents, and the header Shop-Signature its HMAC.
type shop struct {
	source webhook.Source
	secret []byte
	before func(ctx context.Context, d *webhook.Delivery) error // called with a verified delivery
}

type shopEvent struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Created time.Time `json:"created,omitzero"`
	Drop    string    `json:"drop,omitempty"`
	Reply   string    `json:"reply,omitempty"` // of a dropped event
	Status  int       `json:"status,omitempty"`
	Text    string    `json:"text,omitempty"`
	Key     string    `json:"key,omitempty"`
}

func newShop() *shop {
	return &shop{secret: []byte("a secret of the tests, 32 bytes.."), source: webhook.Source{
		Name: "shop", Horizon: 3 * 24 * time.Hour, Deadline: 10 * time.Second, GiveUpAfter: time.Hour,
	}}
}

func (s *shop) Source() webhook.Source { return s.source }

func (s *shop) sign(body []byte) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *shop) Verify(ctx context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	signature := d.Header.Values("Shop-Signature")
	if len(signature) != 1 {
		return nil, webhook.Refuse(webhook.Unsigned, "%d headers Shop-Signature", len(signature))
	}
	if !hmac.Equal([]byte(signature[0]), []byte(s.sign(d.Body))) {
		return nil, webhook.Refuse(webhook.BadSignature, "no secret made the signature")
	}
	if s.before != nil {
		if err := s.before(ctx, d); err != nil {
			return nil, err
		}
	}
	var read []shopEvent
	if err := json.Unmarshal(d.Body, &read); err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%v", err)
	}
	events := make([]webhook.Event, len(read))
	for i, e := range read {
		content := e
		content.Created = time.Time{} // some tests make an event older
		payload, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		events[i] = webhook.Event{Drop: e.Drop, Message: consumer.Message{
			ID: e.ID, Tenant: "shop/live", Topic: e.Type, Time: e.Created, Payload: payload, OrderingKey: e.Key,
		}}
		if e.Reply != "" {
			events[i].Reply = &webhook.Reply{Status: e.Status, ContentType: "text/plain", Body: []byte(e.Reply)}
		}
	}
	return events, nil
}

// deliver makes the request for events, as the sender does.
func (s *shop) request(ctx context.Context, events ...shopEvent) *http.Request {
	body, err := json.Marshal(events)
	if err != nil {
		panic(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/shop?x=1", bytes.NewReader(body))
	req.Header.Set("Shop-Signature", s.sign(body))
	return req
}

// send delivers events to h and returns the response.
func (s *shop) send(t testing.TB, h http.Handler, events ...shopEvent) *http.Response {
	t.Helper()
	return do(h, s.request(t.Context(), events...))
}

func do(h http.Handler, req *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Result()
}

// status delivers events to h and returns the status.
func (s *shop) status(t testing.TB, h http.Handler, events ...shopEvent) int {
	t.Helper()
	return s.send(t, h, events...).StatusCode
}

func wantStatus(t testing.TB, res *http.Response, want int) {
	t.Helper()
	if res.StatusCode != want {
		body, _ := io.ReadAll(res.Body)
		t.Errorf("status %d %q, want %d", res.StatusCode, body, want)
	}
}

// newReceiver fills in what a test left empty, and shuts the Receiver down at the end.
func newReceiver(t testing.TB, cfg webhook.Config) *webhook.Receiver {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// billing returns a consumer on store with what a test did not set.
func billing(t testing.TB, cfg consumer.Config[tx]) *consumer.Consumer[tx] {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "billing"
	}
	if cfg.Key == nil {
		cfg.Key = consumer.MessageID
	}
	if cfg.Store == nil {
		cfg.Store = consumertest.NewStore()
	}
	if cfg.Handle == nil {
		cfg.Handle = count
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// count is a handler that counts one effect under the event's ID.
func count(_ context.Context, tx tx, msg *consumer.Message) error { return tx.Add(msg.ID) }

func letters(t testing.TB, c *consumer.Consumer[tx]) []consumer.DeadLetter {
	t.Helper()
	found, err := c.DeadLetters(context.WithoutCancel(t.Context()), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantCount(t testing.TB, store *consumertest.Store, id string, want int) {
	t.Helper()
	if n := store.Database().Count(id); n != want {
		t.Errorf("%d effects of %q, want %d", n, id, want)
	}
}

// traced collects the hooks that were called, as words.
type traced struct {
	mu    sync.Mutex
	words []string
}

func (tr *traced) trace() *webhook.Trace {
	hook := func(name string, more func(webhook.TraceEvent) string) func(context.Context, webhook.TraceEvent) {
		return func(_ context.Context, e webhook.TraceEvent) {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			if e.Source != "shop" || e.Took < 0 {
				name += "!"
			}
			tr.words = append(tr.words, strings.TrimSpace(name+" "+more(e)))
		}
	}
	id := func(e webhook.TraceEvent) string { return e.Message.ID }
	status := func(e webhook.TraceEvent) string { return fmt.Sprint(e.Status) }
	return &webhook.Trace{
		Refused:   hook("refused", func(e webhook.TraceEvent) string { return string(e.Refusal) }),
		Dropped:   hook("dropped", id),
		Accepted:  hook("accepted", id),
		Duplicate: hook("duplicate", id),
		Parked:    hook("parked", id),
		Deferred:  hook("deferred", id),
		Rejected:  hook("rejected", id),
		Late:      hook("late", status),
		Answered:  hook("answered", status),
	}
}

func (tr *traced) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return strings.Join(tr.words, ", ")
}

// answers is a Processor that gives fixed answers.
type answers func(ctx context.Context, msgs []*consumer.Message) []error

func (a answers) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return a(ctx, msgs)
}

func always(err error) answers {
	return func(_ context.Context, msgs []*consumer.Message) []error {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
}
