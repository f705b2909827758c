package applehook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// What the handler gets, field by field. The payload and the fingerprint are stored in databases, so they must not
// change.
func TestVerify(t *testing.T) {
	c := newChain(t)
	n := full(t, c)
	event, err := verify(t, newVerifier(t, c), body(t, c.sign(t, n)))
	if err != nil {
		t.Fatal(err)
	}
	msg := event.Message
	fingerprint := dedup.FingerprintOf([]byte("applehook 1\x24" + uuid + "\x09DID_RENEW\x10BILLING_RECOVERY\x102000000000000001\x102000000123456789\x0bpro.monthly\x00\x00\x00\x00"))
	want := consumer.Message{
		ID: uuid, Tenant: "apple/Production/com.example.app", Topic: "DID_RENEW", OrderingKey: "2000000000000001",
		Time: signed, Fingerprint: &fingerprint,
		Headers: map[string]string{"apple-environment": "Production", "apple-subtype": "BILLING_RECOVERY"},
		Payload: fmt.Appendf(nil, `{"applehook":1,"notification":%s,"transaction":%s,"renewal":%s}`, toJSON(t, n),
			toJSON(t, transaction()), toJSON(t, renewal())),
	}
	if diff := cmp.Diff(want, msg); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if event.Drop != "" || event.Reply != nil {
		t.Errorf("Drop is %q, Reply is %v", event.Drop, event.Reply)
	}
	got, err := applehook.Decode(&msg)
	if err != nil {
		t.Fatal(err)
	}
	millis := applehook.Millis(signed.UnixMilli())
	wantNotification := &applehook.Notification{
		Type: "DID_RENEW", Subtype: "BILLING_RECOVERY", UUID: uuid, Version: "2.0", SignedDate: millis,
		Raw: toJSON(t, n),
		Data: &applehook.Data{
			AppAppleID: appID, BundleID: bundle, BundleVersion: "7",
			Environment: applehook.Production, Status: 1,
		},
		Transaction: &applehook.Transaction{
			TransactionID: "2000000123456789", OriginalTransactionID: "2000000000000001", BundleID: bundle,
			Environment: applehook.Production,
			ProductID:   "pro.monthly", Price: 9990, Currency: "EUR", SignedDate: millis, ExpiresDate: 1900000000000,
			Raw: toJSON(t, transaction()),
		},
		Renewal: &applehook.Renewal{
			OriginalTransactionID: "2000000000000001", Environment: applehook.Production, AutoRenewStatus: 1,
			SignedDate: millis, Raw: toJSON(t, renewal()),
		},
	}
	if diff := cmp.Diff(wantNotification, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	if !got.SignedDate.Time().Equal(signed) || !applehook.Millis(0).Time().IsZero() {
		t.Errorf("Millis.Time: %v, %v", got.SignedDate.Time(), applehook.Millis(0).Time())
	}
}

// refusedCase is a delivery that must be refused.
type refusedCase struct {
	name string
	body []byte
	why  webhook.Refusal
	text string // in the error
}

func refuseAll(t *testing.T, v *applehook.Verifier, cases []refusedCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			event, err := verify(t, v, tt.body)
			if err == nil {
				t.Fatalf("accepted: %+v", event)
			}
			if got := webhook.RefusalOf(err); got != tt.why || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("refused as %q: %v\nwant %q: …%s…", got, err, tt.why, tt.text)
			}
		})
	}
}

func TestVerifyBody(t *testing.T) {
	c := newChain(t)
	good := c.sign(t, full(t, c))
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"case 47: empty body", nil, webhook.Unsigned, "body"},
		{"case 47: no signedPayload", []byte(`{}`), webhook.Unsigned, "signedPayload is missing"},
		{"case 47: null signedPayload", []byte(`{"signedPayload":null}`), webhook.Unsigned, "signedPayload is missing"},
		{"case 47: empty signedPayload", []byte(`{"signedPayload":""}`), webhook.Unsigned, "signedPayload is missing"},
		{
			"case 47: a notification of version 1", []byte(`{"notification_type":"DID_RENEW","bid":"com.example.app"}`),
			webhook.Unsigned, "version 2",
		},
		{
			"case 47: duplicate signedPayload", []byte(`{"signedPayload":"` + good + `","signedPayload":"` + good + `"}`),
			webhook.Unsigned, "twice",
		},
		{
			"case 47: signedPayload in another case", []byte(`{"SignedPayload":"` + good + `"}`), webhook.Unsigned,
			"signedPayload is missing",
		},
		{
			"case 71: duplicate in another case", []byte(`{"signedPayload":"` + good + `","SIGNEDPAYLOAD":"x"}`),
			webhook.Unsigned, "twice",
		},
		{
			"case 71: duplicate with a Unicode letter that folds to s",
			[]byte(`{"signedPayload":"` + good + `","ſignedPayload":"x"}`), webhook.Unsigned, "twice",
		},
		{"signedPayload is an object", []byte(`{"signedPayload":{}}`), webhook.Unsigned, "not a string"},
		{"an array", []byte(`["` + good + `"]`), webhook.Unsigned, "body"},
		{"null", []byte(`null`), webhook.Unsigned, "null"},
		{"two objects", append(body(t, good), body(t, good)...), webhook.Unsigned, "body"},
		{"a byte order mark", append([]byte("\ufeff"), body(t, good)...), webhook.Unsigned, "body"},
		{"case 71: deep nesting", []byte(`{"signedPayload":"` + good + `","x":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`), webhook.Unsigned, "nested deeper"},
		{
			"case 71: invalid UTF-8", []byte("{\"signedPayload\":\"" + good + "\",\"x\":\"\xff\"}"), webhook.Unsigned,
			"UTF-8",
		},
		{"larger than Source.MaxBody", append(body(t, good), make([]byte, 256<<10)...), webhook.Unsigned, "more than"},
	})
	t.Run("white space and other members do not matter", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, c), []byte("\n{ \"other\": [1e400], \"signedPayload\" : \""+good+
			"\" }\n")); err != nil {
			t.Error(err)
		}
	})
}
