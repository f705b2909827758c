package hmachook_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// TestEmptyBody: net/http does not lift the read deadline of a delivery without a body. A handler that takes longer
// than ReadTimeout must get its 200 nevertheless, and the next delivery on the same connection too.
func TestEmptyBody(t *testing.T) {
	v, err := hmachook.New(hmachook.Config{
		Name: "probe", Secrets: []string{"a secret of the tests, 32 bytes.."}, SignatureHeader: "X-Sig",
		SignatureEncoding: hmachook.Hex, IDHeader: "X-Id",
	})
	if err != nil {
		t.Fatal(err)
	}
	store := consumertest.NewStore()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: 401 * 24 * time.Hour,
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, m *consumer.Message) error {
			<-time.After(300 * time.Millisecond)
			return tx.Add(m.ID)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.New(webhook.Config{
		Verifier: v, Processor: c, ReadTimeout: 100 * time.Millisecond,
		AcceptedRisks: []webhook.Risk{webhook.RiskUntimedInline}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	defer s.Close()
	for i, body := range []string{"x", "", "y", "z"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = v.Sign("", []byte(body), time.Now())
		req.Header.Set("X-Id", "id"+body)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("delivery %d %q: %v", i, body, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("delivery %d %q: %d %s", i, body, res.StatusCode, text)
		}
	}
}
