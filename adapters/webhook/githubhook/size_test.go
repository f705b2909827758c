package githubhook_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/consumer"
)

type accepting struct{}

func (accepting) ProcessBatch(_ context.Context, msgs []*consumer.Message) []error {
	return make([]error, len(msgs))
}

// GitHub does not repeat a delivery that was refused, so each one that it sends is accepted.
func TestLargeDeliveries(t *testing.T) {
	const secret = "a secret of these tests, 32 bytes"
	v, err := githubhook.New(githubhook.Config{Endpoint: "releases-hook", Topic: "push", Secrets: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.New(webhook.Config{Verifier: v, Processor: accepting{}, AcceptedRisks: []webhook.Risk{webhook.RiskUntimedInline}})
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{300 << 10: 200, 25_000_000: 200, 25<<20 + 1: 413} {
		body := append([]byte(`{"ref":"`), bytes.Repeat([]byte("x"), size-10)...)
		body = append(body, `"}`...)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		req.Header = githubhook.Sign(secret, "d-1", "push", body)
		res := httptest.NewRecorder()
		if r.ServeHTTP(res, req); res.Code != want {
			t.Errorf("%d bytes: status %d, want %d", size, res.Code, want)
		}
	}
}
