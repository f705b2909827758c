package applehook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

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
		{
			"case 71: invalid UTF-8", body(t, c.sign(t, `{"notificationUUID":"`+"\xff"+`","notificationType":"X"}`)),
			webhook.Malformed, "UTF-8",
		},
		{"case 71: duplicate ID", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{`, `{"notificationUUID":"x",`, 1))), webhook.Malformed, "twice"},
		{"case 71: duplicate ID in another case", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{`, `{"notificationUuid":"x",`, 1))), webhook.Malformed, "twice"},
		{"case 71: duplicate in an inner object", body(t, c.sign(t, strings.Replace(string(toJSON(t, notification())), `{"appAppleId"`, `{"bundleId":"x","appAppleId"`, 1))), webhook.Malformed, "twice"},
		{"case 71: deep nesting", body(t, c.sign(t, with(notification(), m{"x": json.RawMessage(strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40))}))), webhook.Malformed, "nested deeper"},
		{
			"no type", body(t, c.sign(t, with(notification(), m{"notificationType": nil}))), webhook.Malformed,
			"notificationType",
		},
		{
			"a type with a line break", body(t, c.sign(t, with(notification(), m{"notificationType": "A\nB"}))),
			webhook.Malformed, "notificationType",
		},
		{
			"a subtype that is an array", body(t, c.sign(t, with(notification(), m{"subtype": []int{1}}))),
			webhook.Malformed, "subtype",
		},
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
		"status": 2, "signedTransactionInfo": other.sign(t,
			with(transaction(), m{"signedDate": signed.Add(time.Second).UnixMilli(), "newField": true})),
	})
	again := event(later, other)
	t.Run("E18: signed again with other certificates, dates and status", func(t *testing.T) {
		if first.Message.ID != again.Message.ID || first.Message.Tenant != again.Message.Tenant ||
			*first.Message.Fingerprint != *again.Message.Fingerprint {
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
