package applehook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/await"
)

const day = 24 * time.Hour

// inProcess is a transport that calls a handler without a network, so that a bubble's time goes on.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// newKey returns a key of App Store Connect, as its file and its public half.
func newKey(t testing.TB) (p8 []byte, public *ecdsa.PublicKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), &key.PublicKey
}

// world is an app with Apple's history, a database and a consumer.
type world struct {
	*testing.T
	authority *appletest.Authority
	api       *appletest.API
	verifier  *applehook.Verifier
	store     *consumertest.Store
	key       []byte
	logs      *bytes.Buffer
	handle    consumer.Handler[*deduptest.Tx] // nil: it has the effect
	numbers   int
}

func (w *world) config(store dedup.Store[*deduptest.Tx]) applehook.BackfillConfig[*deduptest.Tx] {
	w.Helper()
	logger := slog.New(slog.NewTextHandler(w.logs, nil))
	_, parks := store.(driver.ParkingLot[*deduptest.Tx])
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, RejectGivenUp: !parks, Key: consumer.MessageID, Window: 200 * day,
		Logger: logger,
		Handle: func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			if w.handle != nil {
				if err := w.handle(ctx, tx, msg); err != nil {
					return err
				}
			}
			return tx.Add(msg.ID)
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return applehook.BackfillConfig[*deduptest.Tx]{
		Name: "billing", Verifier: w.verifier, Processor: billing, Store: store, IssuerID: "issuer", KeyID: "KEY",
		PrivateKey: w.key,
		Since:      time.Now().Add(-200 * day),
		HTTPClient: &http.Client{Transport: inProcess{w.api}}, Logger: logger,
	}
}

// backfill is a new process.
func (w *world) backfill(changes ...func(*applehook.BackfillConfig[*deduptest.Tx])) *applehook.Backfill[*deduptest.Tx] {
	w.Helper()
	cfg := w.config(consumertest.NewStoreOn(w.store.Database()))
	for _, change := range changes {
		change(&cfg)
	}
	b, err := applehook.NewBackfill(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// signed returns the next notification, and its UUID.
func (w *world) signed(at time.Time, kind string) (signedPayload, id string) {
	w.Helper()
	w.numbers++
	id = fmt.Sprintf("00000000-0000-4000-8000-%012d", w.numbers)
	signedPayload, err := w.authority.SignedPayload(appletest.Notification{
		Type: kind, UUID: id, SignedDate: at, BundleID: bundle, AppAppleID: appID,
		Transaction: map[string]any{"originalTransactionId": strconv.Itoa(w.numbers % 7)},
	})
	if err != nil {
		w.Fatal(err)
	}
	return signedPayload, id
}

// missed adds n notifications, one each hour until a moment ago, and returns their UUIDs.
func (w *world) missed(n int) (ids []string) {
	w.Helper()
	for i := range n {
		at := time.Now().Add(time.Duration(i-n) * time.Hour)
		signedPayload, id := w.signed(at, "DID_RENEW")
		w.api.Missed(at, signedPayload)
		ids = append(ids, id)
	}
	return ids
}

// once fails the test unless each of ids has exactly one effect.
func (w *world) once(ids []string) {
	w.Helper()
	for _, id := range ids {
		if n := w.store.Database().Count(id); n != 1 {
			w.Errorf("%s has %d effects", id, n)
		}
	}
}

// through returns the saved checkpoint, or the zero time.
func (w *world) through() time.Time {
	w.Helper()
	c, err := webhook.NewCheckpoint(dedup.Store[*deduptest.Tx](w.store), "billing/apple/Production/"+bundle, 181*day)
	if err != nil {
		w.Fatal(err)
	}
	saved, err := c.Load(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if saved == nil {
		return time.Time{}
	}
	var ms int64
	if _, err := fmt.Sscanf(string(saved), `{"version":1,"through":%d}`, &ms); err != nil {
		w.Fatalf("checkpoint %s: %v", saved, err)
	}
	return time.UnixMilli(ms)
}

func (w *world) pass(b *applehook.Backfill[*deduptest.Tx]) applehook.Passed {
	w.Helper()
	passed, err := b.Pass(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return passed
}

// wait lets the bubble's time pass.
func (w *world) wait(d time.Duration) {
	w.Helper()
	if err := await.Sleep(w.Context(), d); err != nil {
		w.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	authority, err := appletest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := applehook.New(applehook.Config{BundleID: bundle, AppAppleID: appID, Environment: applehook.Production, Roots: authority.Roots()})
	if err != nil {
		t.Fatal(err)
	}
	key, public := newKey(t)
	return &world{
		T: t, authority: authority, verifier: verifier, store: consumertest.NewStore(), key: key,
		logs: new(bytes.Buffer),
		api:  &appletest.API{Key: public, IssuerID: "issuer", KeyID: "KEY", BundleID: bundle},
	}
}

func inBubble(t *testing.T, name string, f func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
	})
}
