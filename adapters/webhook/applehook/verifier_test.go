package applehook_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// What the handler gets, field by field. The payload and the fingerprint are stored in databases, so they must not change.
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
		ID: uuid, Tenant: "apple/Production/com.example.app", Topic: "DID_RENEW", Key: "2000000000000001", Time: signed, Fingerprint: &fingerprint,
		Headers: map[string]string{"apple-environment": "Production", "apple-subtype": "BILLING_RECOVERY"},
		Payload: fmt.Appendf(nil, `{"applehook":1,"notification":%s,"transaction":%s,"renewal":%s}`, toJSON(t, n), toJSON(t, transaction()), toJSON(t, renewal())),
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
		Type: "DID_RENEW", Subtype: "BILLING_RECOVERY", UUID: uuid, Version: "2.0", SignedDate: millis, Raw: toJSON(t, n),
		Data: &applehook.Data{AppAppleID: appID, BundleID: bundle, BundleVersion: "7", Environment: applehook.Production, Status: 1},
		Transaction: &applehook.Transaction{
			TransactionID: "2000000123456789", OriginalTransactionID: "2000000000000001", BundleID: bundle, Environment: applehook.Production,
			ProductID: "pro.monthly", Price: 9990, Currency: "EUR", SignedDate: millis, ExpiresDate: 1900000000000, Raw: toJSON(t, transaction()),
		},
		Renewal: &applehook.Renewal{
			OriginalTransactionID: "2000000000000001", Environment: applehook.Production, AutoRenewStatus: 1, SignedDate: millis, Raw: toJSON(t, renewal()),
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
		{"case 47: a notification of version 1", []byte(`{"notification_type":"DID_RENEW","bid":"com.example.app"}`), webhook.Unsigned, "version 2"},
		{"case 47: duplicate signedPayload", []byte(`{"signedPayload":"` + good + `","signedPayload":"` + good + `"}`), webhook.Unsigned, "twice"},
		{"case 47: signedPayload in another case", []byte(`{"SignedPayload":"` + good + `"}`), webhook.Unsigned, "signedPayload is missing"},
		{"case 71: duplicate in another case", []byte(`{"signedPayload":"` + good + `","SIGNEDPAYLOAD":"x"}`), webhook.Unsigned, "twice"},
		{"case 71: duplicate with a Unicode letter that folds to s", []byte(`{"signedPayload":"` + good + `","ſignedPayload":"x"}`), webhook.Unsigned, "twice"},
		{"signedPayload is an object", []byte(`{"signedPayload":{}}`), webhook.Unsigned, "not a string"},
		{"an array", []byte(`["` + good + `"]`), webhook.Unsigned, "body"},
		{"null", []byte(`null`), webhook.Unsigned, "null"},
		{"two objects", append(body(t, good), body(t, good)...), webhook.Unsigned, "body"},
		{"a byte order mark", append([]byte("\ufeff"), body(t, good)...), webhook.Unsigned, "body"},
		{"case 71: deep nesting", []byte(`{"signedPayload":"` + good + `","x":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`), webhook.Unsigned, "nested deeper"},
		{"case 71: invalid UTF-8", []byte("{\"signedPayload\":\"" + good + "\",\"x\":\"\xff\"}"), webhook.Unsigned, "UTF-8"},
		{"larger than MaxBody", append(body(t, good), make([]byte, applehook.MaxBody)...), webhook.Unsigned, "more than"},
	})
	t.Run("white space and other members do not matter", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, c), []byte("\n{ \"other\": [1e400], \"signedPayload\" : \""+good+"\" }\n")); err != nil {
			t.Error(err)
		}
	})
}

// The identity of the app, the environment and the kind of a notification.
func TestVerifyIdentity(t *testing.T) {
	c := newChain(t)
	sign := func(n m) []byte { return body(t, c.sign(t, n)) }
	dataWith := func(members m) []byte { return sign(with(notification(), m{"data": with(data(), members)})) }
	token := m{"externalPurchaseId": "b2158121", "bundleId": bundle, "appAppleId": appID, "tokenCreationDate": 1}
	without := with(notification(), m{"data": nil})
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"another bundle", dataWith(m{"bundleId": "com.example.other"}), webhook.WrongApp, "com.example.other"},
		{"a bundle that begins alike", dataWith(m{"bundleId": bundle + ".x"}), webhook.WrongApp, "bundle"},
		{"no bundle", dataWith(m{"bundleId": nil}), webhook.WrongApp, "bundle"},
		{"another app", dataWith(m{"appAppleId": 7}), webhook.WrongApp, "app 7"},
		{"no app in production", dataWith(m{"appAppleId": nil}), webhook.WrongApp, "app 0"},
		{"case 58: the sandbox", dataWith(m{"environment": "Sandbox", "appAppleId": nil}), webhook.WrongApp, "Sandbox"},
		{"signed by Xcode", dataWith(m{"environment": "Xcode"}), webhook.WrongApp, "Xcode"},
		{"no environment", dataWith(m{"environment": nil}), webhook.WrongApp, "environment"},
		{"the bundle counts before the environment", dataWith(m{"bundleId": "com.example.other", "environment": "Sandbox"}), webhook.WrongApp, "bundle"},
		{"no identity", sign(without), webhook.WrongApp, "names no app"},
		{"all null", sign(with(without, m{"data": json.RawMessage("null"), "summary": json.RawMessage("null")})), webhook.WrongApp, "names no app"},
		{"the first object counts", sign(with(notification(), m{"data": m{}, "summary": data()})), webhook.WrongApp, "bundle"},
		{"sandbox token", sign(with(without, m{"externalPurchaseToken": with(token, m{"externalPurchaseId": "SANDBOX_b2158121"})})), webhook.WrongApp, "Sandbox"},
		{"token of another app", sign(with(without, m{"externalPurchaseToken": with(token, m{"appAppleId": 7})})), webhook.WrongApp, "app 7"},
		{"data is a string", sign(with(notification(), m{"data": "x"})), webhook.Malformed, "data"},
		{"bundle is a number", dataWith(m{"bundleId": 7}), webhook.Malformed, "bundleId"},
		{"environment is a number", dataWith(m{"environment": 7}), webhook.Malformed, "environment"},
		{"case 71: the app as a float", dataWith(m{"appAppleId": json.RawMessage("1234567890.0")}), webhook.Malformed, "appAppleId"},
		{"case 71: the app as a huge integer", dataWith(m{"appAppleId": json.RawMessage("12345678901234567890123")}), webhook.Malformed, "appAppleId"},
		{"token ID is a number", sign(with(without, m{"externalPurchaseToken": with(token, m{"externalPurchaseId": 7})})), webhook.Malformed, "externalPurchaseId"},
	})
	for _, tt := range []struct {
		name string
		n    m
	}{
		{"data", notification()},
		{"summary", with(without, m{"summary": with(data(), m{"requestIdentifier": "r", "succeededCount": 5})})},
		{"externalPurchaseToken", with(without, m{"externalPurchaseToken": token})},
		{"appData", with(without, m{"appData": data()})},
		{"unknown type and subtype (R13)", with(notification(), m{"notificationType": "SOMETHING_NEW", "subtype": "VERY_NEW"})},
		{"unknown members (R13)", with(notification(), m{"more": m{"deep": []any{1, "x", nil}}})},
		{"no subtype", with(notification(), m{"subtype": nil})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event, err := verify(t, newVerifier(t, c), sign(tt.n))
			if err != nil {
				t.Fatal(err)
			}
			if event.Drop != "" || event.Message.Topic != tt.n["notificationType"] {
				t.Errorf("Drop %q, topic %q", event.Drop, event.Message.Topic)
			}
			if n, err := applehook.Decode(&event.Message); err != nil || n.Type != tt.n["notificationType"] {
				t.Errorf("Decode: %+v, %v", n, err)
			}
		})
	}
}

// Sandbox notifications at a production endpoint, and the other way round.
func TestVerifyEnvironments(t *testing.T) {
	c := newChain(t)
	sandbox := with(notification(), m{"data": with(data(), m{
		"environment": "Sandbox", "appAppleId": nil, "signedTransactionInfo": c.sign(t, with(transaction(), m{"environment": "Sandbox"})),
	})})
	inSandbox := func(cfg *applehook.Config) { cfg.Environment, cfg.AppAppleID = applehook.Sandbox, 0 }
	drop := func(cfg *applehook.Config) { cfg.DropSandbox = true }

	t.Run("case 58: dropped with 200 if so configured", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, drop), body(t, c.sign(t, sandbox)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(event.Drop, "sandbox") || event.Message.Tenant != "apple/Sandbox/com.example.app" {
			t.Errorf("Drop %q, tenant %q", event.Drop, event.Message.Tenant)
		}
	})
	t.Run("case 58: the sandbox of another app is refused all the same", func(t *testing.T) {
		other := with(sandbox, m{"data": with(sandbox["data"].(m), m{"bundleId": "com.example.other"})})
		if _, err := verify(t, newVerifier(t, c, drop), body(t, c.sign(t, other))); webhook.RefusalOf(err) != webhook.WrongApp {
			t.Error(err)
		}
	})
	t.Run("case 58: a production notification is never dropped", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, drop), body(t, c.sign(t, full(t, c))))
		if err != nil || event.Drop != "" {
			t.Error(event.Drop, err)
		}
	})
	t.Run("the sandbox's endpoint takes the sandbox", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, inSandbox), body(t, c.sign(t, sandbox)))
		if err != nil || event.Drop != "" || event.Message.Tenant != "apple/Sandbox/com.example.app" {
			t.Error(event, err)
		}
	})
	t.Run("the sandbox's endpoint refuses production", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, c, inSandbox), body(t, c.sign(t, full(t, c)))); webhook.RefusalOf(err) != webhook.WrongApp {
			t.Error(err)
		}
	})
	t.Run("R11: TEST is verified and dropped", func(t *testing.T) {
		test := body(t, c.sign(t, with(notification(), m{"notificationType": "TEST", "subtype": nil})))
		event, err := verify(t, newVerifier(t, c), test)
		if err != nil || event.Drop != "test notification" || event.Message.ID != uuid {
			t.Error(event, err)
		}
		event, err = verify(t, newVerifier(t, c, func(cfg *applehook.Config) { cfg.HandleTest = true }), test)
		if err != nil || event.Drop != "" {
			t.Error(event, err)
		}
		if _, err := verify(t, newVerifier(t, newChain(t)), test); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Errorf("a forged TEST: %v", err)
		}
	})
}

// IDs become keys in databases.
func TestVerifyID(t *testing.T) {
	c := newChain(t)
	id := func(v any) []byte { return body(t, c.sign(t, with(notification(), m{"notificationUUID": v}))) }
	raw := func(s string) []byte { return id(json.RawMessage(s)) }
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"no ID", id(nil), webhook.Malformed, "notificationUUID"},
		{"empty ID", id(""), webhook.Malformed, "notificationUUID"},
		{"case 72: 256 bytes", id(strings.Repeat("x", 256)), webhook.Malformed, "notificationUUID"},
		{"case 72: NUL", raw(`"a\u0000b"`), webhook.Malformed, "notificationUUID"},
		{"case 71: a lone surrogate", raw(`"\ud800"`), webhook.Malformed, "notificationUUID"},
		{"case 71: a number", raw("9007199254740993"), webhook.Malformed, "notificationUUID"},
		{"case 71: invalid UTF-8", body(t, c.sign(t, `{"notificationUUID":"`+"\xff"+`","notificationType":"X"}`)), webhook.Malformed, "UTF-8"},
		{"case 71: duplicate ID", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{`, `{"notificationUUID":"x",`, 1))), webhook.Malformed, "twice"},
		{"case 71: duplicate ID in another case", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{`, `{"notificationUuid":"x",`, 1))), webhook.Malformed, "twice"},
		{"case 71: duplicate in an inner object", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{"appAppleId"`, `{"bundleId":"x","appAppleId"`, 1))), webhook.Malformed, "twice"},
		{"case 71: deep nesting", body(t, c.sign(t, with(notification(), m{"x": json.RawMessage(strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40))}))), webhook.Malformed, "nested deeper"},
		{"no type", body(t, c.sign(t, with(notification(), m{"notificationType": nil}))), webhook.Malformed, "notificationType"},
		{"a type with a line break", body(t, c.sign(t, with(notification(), m{"notificationType": "A\nB"}))), webhook.Malformed, "notificationType"},
		{"a subtype that is an array", body(t, c.sign(t, with(notification(), m{"subtype": []int{1}}))), webhook.Malformed, "subtype"},
		{"not JSON", body(t, c.sign(t, "hello")), webhook.Malformed, "signedPayload"},
	})
	t.Run("case 72: 255 bytes", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), id(strings.Repeat("x", 255)))
		if err != nil || len(event.Message.ID) != 255 {
			t.Error(event.Message.ID, err)
		}
	})
	t.Run("case 71: an integer above 2^53 keeps its digits", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), body(t, c.sign(t, with(notification(), m{"data": with(data(), m{
			"signedTransactionInfo": c.sign(t, with(transaction(), m{"price": json.RawMessage("9007199254740993")})),
		})}))))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := applehook.Decode(&event.Message); err != nil || n.Transaction.Price != 9007199254740993 {
			t.Error(n, err)
		}
	})
}

// E18, E26: what is the same in each delivery and in a backfill.
func TestVerifyAgain(t *testing.T) {
	c, other := newChain(t), newChain(t)
	v := newVerifier(t, c, func(cfg *applehook.Config) { cfg.Roots = append(c.roots(), other.roots()...) })
	event := func(n m, by chain) webhook.Event {
		t.Helper()
		e, err := verify(t, v, body(t, by.sign(t, n)))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := event(full(t, c), c)
	later := with(full(t, other), m{"signedDate": signed.Add(time.Second).UnixMilli()})
	later["data"] = with(later["data"].(m), m{
		"status": 2, "signedTransactionInfo": other.sign(t, with(transaction(), m{"signedDate": signed.Add(time.Second).UnixMilli(), "newField": true})),
	})
	again := event(later, other)
	t.Run("E18: signed again with other certificates, dates and status", func(t *testing.T) {
		if first.Message.ID != again.Message.ID || first.Message.Tenant != again.Message.Tenant || *first.Message.Fingerprint != *again.Message.Fingerprint {
			t.Errorf("%v and %v", first.Message, again.Message)
		}
	})
	t.Run("E18: other content under the same ID", func(t *testing.T) {
		for name, n := range map[string]m{
			"type":        with(full(t, c), m{"notificationType": "REFUND"}),
			"subtype":     with(full(t, c), m{"subtype": nil}),
			"transaction": with(notification(), m{"data": with(data(), m{"signedTransactionInfo": c.sign(t, with(transaction(), m{"transactionId": "2"}))})}),
		} {
			if e := event(n, c); *e.Message.Fingerprint == *first.Message.Fingerprint {
				t.Errorf("another %s has the same fingerprint", name)
			}
		}
	})
	t.Run("E26: the time is the signed one, and zero if there is none", func(t *testing.T) {
		if !first.Message.Time.Equal(signed) {
			t.Error(first.Message.Time)
		}
		if e := event(with(full(t, c), m{"signedDate": nil}), c); !e.Message.Time.IsZero() {
			t.Error(e.Message.Time)
		}
	})
	t.Run("E26: headers hold only what is signed", func(t *testing.T) {
		want := map[string]string{"apple-environment": "Production", "apple-subtype": "BILLING_RECOVERY"}
		if diff := cmp.Diff(want, first.Message.Headers); diff != "" {
			t.Error(diff)
		}
	})
}
