package webhooks_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/system/engines"
)

// newEvents returns a verifier, and a function that makes the delivery of a new event of 1 kB or more.
var newEvents = map[string]func() (webhook.Verifier, func() delivery){
	"stripe": func() (webhook.Verifier, func() delivery) {
		const secret = "whsec_copied0from1the2dashboard"
		object := map[string]string{"id": "in_1", "description": strings.Repeat("x", 800)}
		return must(stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: secret, Mode: stripehook.Live}}})), func() delivery {
			body := stripehook.Event{ID: "evt_" + rand.Text(), Type: "invoice.paid", Livemode: true}.Body(object)
			return delivery{http.Header{"Stripe-Signature": {stripehook.Sign(body, time.Now(), secret)}}, body}
		}
	},
	"github": func() (webhook.Verifier, func() delivery) {
		return must(githubhook.New(githubhook.Config{Endpoint: "hook", Topic: "release", Secrets: []string{secret}})),
			func() delivery {
				body := []byte(`{"action":"published","release":{"node_id":"` + rand.Text() + `","body":"` +
					strings.Repeat("x", 950) + `"}}`)
				return delivery{githubhook.Sign(secret, rand.Text(), "release", body), body}
			}
	},
	"apple": func() (webhook.Verifier, func() delivery) { // with two signed parts: three chains of certificates
		authority := must(appletest.NewAuthority())
		transaction := map[string]any{
			"originalTransactionId": "2000000000000001", "transactionId": "2000000000000002",
			"productId": "monthly",
		}
		return must(applehook.New(applehook.Config{BundleID: "com.example.app", AppAppleID: 7, Environment: applehook.Production, Roots: authority.Roots()})),
			func() delivery {
				return delivery{body: must(authority.Body(appletest.Notification{
					Type: "DID_RENEW", BundleID: "com.example.app", AppAppleID: 7, Transaction: transaction,
					Renewal: transaction,
				}))}
			}
	},
}

// BenchmarkReceiver compares the Receiver with the same handler in a bare transaction that nothing guards: its
// signature check alone, a new event, the same through an Inbox, and an event that is delivered again. They take turns,
// because only that can be compared on a machine that others use. The figures are medians.
func BenchmarkReceiver(b *testing.B) {
	for _, name := range []string{"stripe", "github", "apple"} {
		b.Run(name, func(b *testing.B) { benchmarkReceiver(b, name) })
	}
}

func benchmarkReceiver(b *testing.B, name string) {
	pool, err := pgxpool.New(b.Context(), engines.Postgres.Create(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	handle := func(ctx context.Context, tx pgx.Tx, payload []byte) error {
		_, err := tx.Exec(ctx, engines.Postgres.Insert, "bench", string(payload[:20]))
		return err
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error { return handle(r.Context(), tx, body) })
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	verifier, next := newEvents[name]()
	logger := slog.New(slog.DiscardHandler)
	store := must(pgxstore.New(pgxstore.Config{Pool: pool, Logger: logger}))
	inline := must(consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: webhook.DefaultInboxWindow, Logger: logger,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error { return handle(ctx, tx, m.Payload) },
	}))
	inbox := must(webhook.NewInbox(webhook.InboxConfig[pgx.Tx]{Name: "billing", Store: store, Logger: logger}))
	receiver := func(p driver.BatchProcessor) http.Handler {
		return must(webhook.New(webhook.Config{
			Verifier: verifier, Processor: p, Logger: logger, AcceptedRisks: []webhook.Risk{webhook.RiskUntimedInline},
		}))
	}
	verify := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = verifier.Verify(r.Context(), &webhook.Delivery{Header: r.Header, Body: body, Time: time.Now()})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	kinds := []struct {
		name string
		h    http.Handler
	}{
		{"bare", bare},
		{"verify", verify},
		{"inline", receiver(inline)},
		{"inbox", receiver(inbox)},
		{"duplicate", receiver(inline)},
	}
	took := make([][]time.Duration, len(kinds))
	serve := func(i int, d delivery) {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/hook", bytes.NewReader(d.body))
		if d.header != nil {
			r.Header = d.header
		}
		w := httptest.NewRecorder()
		began := time.Now()
		kinds[i].h.ServeHTTP(w, r)
		took[i] = append(took[i], time.Since(began))
		if w.Code != http.StatusOK {
			b.Fatal(kinds[i].name, w.Code, w.Body)
		}
	}
	for b.Loop() {
		known := next()
		for i, kind := range kinds {
			d := next()
			if kind.name == "inline" || kind.name == "duplicate" {
				d = known
			}
			serve(i, d)
		}
	}
	medians := make([]float64, len(kinds))
	for i := range kinds {
		slices.Sort(took[i])
		medians[i] = float64(took[i][len(took[i])/2])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medians[0], "bare-ns")
	b.ReportMetric(medians[1], "verify-ns")
	for i, kind := range kinds[2:] {
		b.ReportMetric(medians[2+i], kind.name+"-ns")
		b.ReportMetric(medians[2+i]/medians[0], kind.name+"/bare")
	}
}
