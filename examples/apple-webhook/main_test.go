package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestDemo(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { testDemo(t, options{}) })
	t.Run("PostgreSQL", func(t *testing.T) {
		o := options{postgres: testdb.Schema(t, testdb.Postgres(t))}
		testDemo(t, o)
		testDemo(t, o) // the first one's notifications are still in the database
	})
}

func testDemo(t *testing.T, o options) {
	t.Helper()
	var out bytes.Buffer
	o.out = &out
	if err := demo(t.Context(), o); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	if n := strings.Count(out.String(), "  400  "); n != 5 {
		t.Errorf("%d forgeries were refused, want 5:\n%s", n, &out)
	}
}

// The audit notices each kind of wrong result.
func TestAudit(t *testing.T) {
	for _, c := range []struct{ name, change, want string }{
		{"nothing wrong", `SELECT 1`, ""},
		{
			"a renewal twice", `INSERT INTO renewals SELECT * FROM renewals WHERE notification = 'run-1'`,
			"2 renewal of subscription 1, want 1",
		},
		{"a lost renewal", `DELETE FROM renewals WHERE notification = 'run-2'`, "0 renewal of subscription 2, want 1"},
		{
			"a forged renewal", `INSERT INTO renewals VALUES ('run-4', 'forged', 5)`,
			"1 renewals that Apple did not announce, want 0",
		},
		{
			"an older state of the subscription", `UPDATE subscription_states SET state = 'active'`,
			"0 expired subscription, want 1",
		},
		{"a lost dead letter", `DELETE FROM dead_letters`, "0 parked notification, want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, o := world(t)
			if err := serve(t.Context(), o, s.deliver); err != nil {
				t.Fatal(err)
			}
			db, _, err := open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.ExecContext(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			s.audit(t.Context(), o)
			if got := fmt.Sprint(s.Wrong); c.want == "" && len(s.Wrong) > 0 || !strings.Contains(got, c.want) {
				t.Errorf("wrong: %v, want %q", got, c.want)
			}
		})
	}
}

// The backfill fetches a notification that did not arrive, and does nothing with one that did.
func TestBackfill(t *testing.T) {
	s, o := world(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	o.key = apiKey{issuer: "57246542-96fe", id: "2X9R4HXF34", file: filepath.Join(t.TempDir(), "AuthKey.p8")}
	if err := os.WriteFile(o.key.file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		0o600); err != nil {
		t.Fatal(err)
	}
	api := &appletest.API{Key: &key.PublicKey, IssuerID: o.key.issuer, KeyID: o.key.id, BundleID: demoBundle}
	for n, add := range []func(time.Time, string){api.Acknowledged, api.Missed} {
		signed, err := s.apple.SignedPayload(s.renewal(n + 1))
		if err != nil {
			t.Fatal(err)
		}
		add(time.Now().Add(-time.Hour), signed)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	o.apiURL = server.URL
	err = serve(t.Context(), o, func(ctx context.Context, url string) {
		s.Send(ctx, url, "subscription 1", s.sign(s.apple, s.renewal(1)), nil, 200)
		waitForRenewals(t, o, 2)
	})
	if err != nil || len(s.Wrong) > 0 {
		t.Error(err, s.Wrong)
	}
}

// waitForRenewals waits until there are want renewals, and fails if a notification has two.
func waitForRenewals(t *testing.T, o options, want int) {
	t.Helper()
	db, _, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.After(time.Minute); ; {
		var renewals, notifications int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT notification) FROM renewals`).Scan(&renewals, &notifications); err != nil {
			t.Fatal(err)
		}
		if renewals != notifications {
			t.Fatalf("%d renewals of %d notifications", renewals, notifications)
		}
		if notifications == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d renewals, want %d", renewals, want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func world(t *testing.T) (*sender, options) {
	t.Helper()
	s, err := newSender(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.Run = "run"
	return s, options{
		listen: "127.0.0.1:0", sqlite: filepath.Join(t.TempDir(), "test.db"), app: s.config(),
		logger: slog.New(slog.DiscardHandler),
	}
}
