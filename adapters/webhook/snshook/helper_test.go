package snshook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
)

const (
	orders = "arn:aws:sns:us-east-1:123456789012:orders"
	other  = "arn:aws:sns:us-east-1:999999999999:orders"
)

var published = time.Date(2026, 5, 4, 3, 2, 1, 123e6, time.UTC)

// network counts requests, and answers with respond, or like the Signer.
type network struct {
	signer  *snshook.Signer
	respond func(*http.Request) (*http.Response, error)

	mu   sync.Mutex
	urls []string
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.urls = append(n.urls, req.URL.String())
	n.mu.Unlock()
	if n.respond != nil {
		return n.respond(req)
	}
	return n.signer.RoundTrip(req)
}

func (n *network) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.urls)
}

func response(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
}

// sharedSigner saves the time of making a key for each test.
var sharedSigner = sync.OnceValue(func() *snshook.Signer {
	s, err := snshook.NewSigner()
	if err != nil {
		panic(err)
	}
	return s
})

func newVerifier(t testing.TB, cfg snshook.Config) (*snshook.Verifier, *network) {
	t.Helper()
	n := &network{signer: sharedSigner()}
	cfg.Transport = n
	if cfg.TopicArns == nil {
		cfg.TopicArns = []string{orders}
	}
	v, err := snshook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v, n
}

func sign(t testing.TB, m snshook.Message) []byte {
	t.Helper()
	if m.TopicArn == "" {
		m.TopicArn = orders
	}
	if m.Timestamp.IsZero() {
		m.Timestamp = published
	}
	if m.MessageID == "" {
		m.MessageID = "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"
	}
	body, err := sharedSigner().Sign(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// changed returns body with fields set to other values; nil removes a field.
func changed(t testing.TB, body []byte, fields map[string]any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m, fields)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func verify(t testing.TB, v *snshook.Verifier, body []byte) ([]webhook.Event, error) {
	t.Helper()
	return v.Verify(t.Context(), &webhook.Delivery{
		Header: http.Header{"Content-Type": {"text/plain; charset=UTF-8"}}, Body: body,
		Time: published.Add(time.Second),
	})
}

func field(t testing.TB, body []byte, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m[name].(string)
}
