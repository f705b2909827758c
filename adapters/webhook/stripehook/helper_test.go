package stripehook_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

// Secrets that these tests made up.
const (
	liveSecret    = "whsec_live0endpoint1secret2for3tests"
	newSecret     = "whsec_live0endpoint1after2a3roll4over"
	connectSecret = "whsec_connect0endpoint1secret2in3tests"
	testSecret    = "whsec_test0endpoint1secret2for3tests"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// liveSecrets is one live endpoint.
var liveSecrets = []stripehook.Secret{{Value: liveSecret, Mode: stripehook.Live}}

// connect is a live Connect endpoint.
var connect = stripehook.Config{Secrets: []stripehook.Secret{{Value: liveSecret, Mode: stripehook.Live, Connect: true}}}

func newVerifier(t testing.TB, cfg stripehook.Config) *stripehook.Verifier {
	t.Helper()
	if cfg.Secrets == nil {
		cfg.Secrets = liveSecrets
	}
	v, err := stripehook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// paid is a snapshot event.
func paid() stripehook.Event {
	return stripehook.Event{
		ID: "evt_1", Type: "invoice.paid", Created: now.Add(-time.Minute), Livemode: true,
		Object: "in_1", APIVersion: "2026-10-01",
	}
}

// delivery is a delivery of body that was received now, with the given Stripe-Signature headers.
func delivery(body []byte, headers ...string) *webhook.Delivery {
	return &webhook.Delivery{Header: http.Header{"Stripe-Signature": headers}, Body: body, Time: now}
}

// signed is a delivery of body as Stripe makes it.
func signed(body []byte, secrets ...string) *webhook.Delivery {
	return delivery(body, stripehook.Sign(body, now, secrets...))
}

// accepted returns the one event of d.
func accepted(t testing.TB, v *stripehook.Verifier, d *webhook.Delivery) webhook.Event {
	t.Helper()
	events, err := v.Verify(t.Context(), d)
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, error %v; want one event", len(events), err)
	}
	return events[0]
}

// refused checks that d is refused with status 400, for the reason want.
func refused(t testing.TB, v *stripehook.Verifier, d *webhook.Delivery, want webhook.Refusal) {
	t.Helper()
	events, err := v.Verify(t.Context(), d)
	if got := webhook.RefusalOf(err); got != want || want == "" || len(events) != 0 {
		t.Errorf("%d events, refused as %q: %v; want %q", len(events), got, err, want)
	}
}

// hmacHex is HMAC-SHA256 as RFC 2104 writes it, so that a mistake in the product's use of crypto/hmac would show.
func hmacHex(key, text string) string {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	inner, outer := block, block
	for i := range block {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	sum := sha256.Sum256(append(inner[:], text...))
	sum = sha256.Sum256(append(outer[:], sum[:]...))
	return hex.EncodeToString(sum[:])
}
