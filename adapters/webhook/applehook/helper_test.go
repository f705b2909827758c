package applehook_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

const (
	bundle = "com.example.app"
	appID  = 1234567890
	uuid   = "a0b1c2d3-e4f5-4a6b-8c7d-9e8f7a6b5c4d"
)

// received is when all deliveries of these tests arrive, and signed when their notifications were signed.
var (
	received = time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	signed   = received.Add(-2 * time.Second)
)

// m is a JSON object.
type m = map[string]any

// with returns a copy of o with other members. A nil removes a member.
func with(o m, members m) m {
	changed := m{}
	for name, v := range o {
		changed[name] = v
	}
	for name, v := range members {
		if v == nil {
			delete(changed, name)
			continue
		}
		changed[name] = v
	}
	return changed
}

func transaction() m {
	return m{
		"transactionId": "2000000123456789", "originalTransactionId": "2000000000000001", "bundleId": bundle,
		"environment": "Production",
		"productId":   "pro.monthly", "price": 9990, "currency": "EUR", "signedDate": signed.UnixMilli(),
		"expiresDate": 1900000000000,
	}
}

func renewal() m {
	return m{
		"originalTransactionId": "2000000000000001", "environment": "Production", "autoRenewStatus": 1,
		"signedDate": signed.UnixMilli(),
	}
}

// data has no signed parts.
func data() m {
	return m{"bundleId": bundle, "appAppleId": appID, "environment": "Production", "bundleVersion": "7", "status": 1}
}

// notification is one of the production environment, without signed parts.
func notification() m {
	return m{
		"notificationType": "DID_RENEW", "subtype": "BILLING_RECOVERY", "notificationUUID": uuid, "version": "2.0",
		"signedDate": signed.UnixMilli(), "data": data(),
	}
}

// full returns a notification with a transaction and a renewal, signed by c.
func full(t testing.TB, c chain) m {
	t.Helper()
	return with(notification(), m{"data": with(data(), m{
		"signedTransactionInfo": c.sign(t, transaction()), "signedRenewalInfo": c.sign(t, renewal()),
	})})
}

func newVerifier(t testing.TB, c chain, changes ...func(*applehook.Config)) *applehook.Verifier {
	t.Helper()
	cfg := applehook.Config{BundleID: bundle, AppAppleID: appID, Environment: applehook.Production, Roots: c.roots()}
	for _, change := range changes {
		change(&cfg)
	}
	v, err := applehook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// body is the body of a request with a JWS.
func body(t testing.TB, jws string) []byte {
	t.Helper()
	return toJSON(t, m{"signedPayload": jws})
}

// verify verifies a delivery. It fails the test if the answer is neither one event nor an error.
func verify(t testing.TB, v *applehook.Verifier, body []byte) (webhook.Event, error) {
	t.Helper()
	return verifyAt(t, v, body, received)
}

func verifyAt(t testing.TB, v *applehook.Verifier, body []byte, at time.Time) (webhook.Event, error) {
	t.Helper()
	events, err := v.Verify(t.Context(), &webhook.Delivery{Body: body, Time: at})
	switch {
	case err != nil && len(events) > 0:
		t.Fatalf("Verify returns %d events and %v", len(events), err)
	case err != nil:
		return webhook.Event{}, err
	case len(events) != 1:
		t.Fatalf("Verify returns %d events", len(events))
	}
	return events[0], nil
}
