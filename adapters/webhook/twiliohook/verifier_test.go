package twiliohook_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
	"github.com/txonce/txonce/consumer"
)

const (
	token    = "0123456789abcdef0123456789abcdef"
	newToken = "fedcba9876543210fedcba9876543210"
	target   = "https://hooks.example.com/twilio?order=42"
	account  = "AC00000000000000000000000000000001"
	message  = "SM00000000000000000000000000000002"
	call     = "CA00000000000000000000000000000003"
)

func newVerifier(t testing.TB, cfg twiliohook.Config) *twiliohook.Verifier {
	t.Helper()
	if cfg.AuthTokens == nil {
		cfg.AuthTokens = []string{token}
	}
	v, err := twiliohook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func status() url.Values {
	return url.Values{
		"AccountSid": {account}, "MessageSid": {message}, "MessageStatus": {"delivered"},
		"SmsStatus": {"delivered"}, "To": {"+491701234567"},
	}
}

func delivery(at, signature, body string) *webhook.Delivery {
	d := &webhook.Delivery{Header: http.Header{}, URL: at, Body: []byte(body), Time: time.Date(2026, 5, 4, 3, 2, 1, 0,
		time.UTC)}
	if signature != "" {
		d.Header.Set("X-Twilio-Signature", signature)
	}
	return d
}

func TestVerify(t *testing.T) {
	for _, test := range []struct {
		name   string
		form   url.Values
		signed string // empty: target
		id     string
		topic  string
	}{
		{
			name: "E24: the status of a message, as a form", form: status(), id: message + ":delivered",
			topic: "message.delivered",
		},
		{
			name: "an incoming message",
			form: url.Values{
				"MessageSid": {message}, "SmsStatus": {"received"}, "Body": {"50% off & more; ü"},
				"From": {"+1"},
			},
			id: message + ":received", topic: "message.received",
		},
		{
			name: "a call", form: url.Values{"CallSid": {call}, "CallStatus": {"in-progress"}}, id: call + ":in-progress",
			topic: "call.in-progress",
		},
		{
			name: "E25: signed with the port", form: status(), signed: "https://hooks.example.com:443/twilio?order=42",
			id: message + ":delivered", topic: "message.delivered",
		},
		{
			name: "E25: repeated parameters",
			form: url.Values{"CallSid": {call}, "CallStatus": {"completed"}, "MediaUrl": {"b", "a", "b"}},
			id:   call + ":completed", topic: "call.completed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			signed := test.signed
			if signed == "" {
				signed = target
			}
			got, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(),
				delivery(target, twiliohook.Sign(token, signed, test.form), test.form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			payload, err := url.ParseQuery(string(got[0].Message.Payload))
			if err != nil {
				t.Fatal(err)
			}
			want := test.form
			if want.Has("MediaUrl") {
				want["MediaUrl"] = []string{"a", "b"}
			}
			if diff := cmp.Diff(want, payload); diff != "" {
				t.Errorf("payload (-want +got)\n%s", diff)
			}
			if got[0].Message.Fingerprint == nil || got[0].Message.Fingerprint.IsZero() ||
				len(got[0].Message.Aliases) != 1 {
				t.Errorf("fingerprint %v, aliases %v", got[0].Message.Fingerprint, got[0].Message.Aliases)
			}
			got[0].Message.Payload, got[0].Message.Fingerprint, got[0].Message.Aliases = nil, nil, nil
			if diff := cmp.Diff([]webhook.Event{{Message: consumer.Message{
				// E26: no Time
				ID: test.id, Topic: test.topic, Tenant: "twilio", Headers: map[string]string{"twilio-url": target},
			}}}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	form := status()
	body, signature := form.Encode(), twiliohook.Sign(token, target, form)
	jsonURL, jsonSignature := twiliohook.SignJSON(token, target, []byte(`{}`))
	twice := delivery(target, signature, body)
	twice.Header.Add("X-Twilio-Signature", signature)
	signedForm := func(form url.Values) *webhook.Delivery {
		return delivery(target, twiliohook.Sign(token, target, form), form.Encode())
	}
	for _, test := range []struct {
		name string
		d    *webhook.Delivery
		want webhook.Refusal
	}{
		{"case 47: no signature", delivery(target, "", body), webhook.Unsigned},
		{"case 47: two signatures", twice, webhook.Unsigned},
		{"case 49: a new line after the body", delivery(target, signature, body+"\n"), webhook.BadSignature},
		{"case 49: a byte order mark", delivery(target, signature, "\ufeff"+body), webhook.BadSignature},
		{"case 49: another status", delivery(target, signature, strings.Replace(body, "MessageStatus=delivered", "MessageStatus=failed", 1)), webhook.BadSignature},
		{"case 49: a further parameter", delivery(target, signature, body+"&ZZ=1"), webhook.BadSignature},
		{"case 49: no form", delivery(target, signature, "a=%zz"), webhook.BadSignature},
		{
			"case 50: another token", delivery(target, twiliohook.Sign(newToken, target, form), body),
			webhook.BadSignature,
		},
		{"case 50: JSON at an endpoint for forms", delivery(jsonURL, jsonSignature, `{}`), webhook.BadSignature},
		{"case 51: a truncated signature", delivery(target, signature[:20], body), webhook.Unsigned},
		{
			"case 51: a signature without padding", delivery(target, strings.TrimRight(signature, "="), body),
			webhook.Unsigned,
		},
		{"case 51: a long signature", delivery(target, signature+signature, body), webhook.Unsigned},
		{"case 71: two ids", signedForm(url.Values{"MessageSid": {message, "SM00000000000000000000000000000009"}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{
			"case 71: two statuses", signedForm(url.Values{"MessageSid": {message}, "MessageStatus": {"sent", "failed"}}),
			webhook.Malformed,
		},
		{"case 71: invalid UTF-8 in the id", signedForm(url.Values{"MessageSid": {message + "\xff"}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{"case 72: a long id", signedForm(url.Values{"MessageSid": {strings.Repeat("a", 256)}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{
			"case 72: NUL in the id", signedForm(url.Values{"MessageSid": {message + "\x00"}, "MessageStatus": {"sent"}}),
			webhook.Malformed,
		},
		{"no status", signedForm(url.Values{"MessageSid": {message}}), webhook.Malformed},
		{"no id", signedForm(url.Values{"a": {"b"}}), webhook.Malformed},
		{"nothing", signedForm(url.Values{}), webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), test.d)
			if got := webhook.RefusalOf(err); got != test.want || events != nil {
				t.Errorf("Verify = %v, %v; want a refusal %q", events, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), token) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestAccounts(t *testing.T) {
	v := newVerifier(t, twiliohook.Config{AccountSids: []string{account}})
	for _, test := range []struct {
		sids []string
		want webhook.Refusal
	}{
		{[]string{account}, ""},
		{[]string{"AC00000000000000000000000000000009"}, webhook.WrongApp},
		{[]string{account, "AC00000000000000000000000000000009"}, webhook.WrongApp},
		{nil, webhook.WrongApp},
	} {
		form := status()
		form["AccountSid"] = test.sids
		_, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, target, form), form.Encode()))
		if webhook.RefusalOf(err) != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%q: %v", test.sids, err)
		}
	}
}

func TestIdentifyCannotReturnAnAlias(t *testing.T) {
	form := status()
	d := delivery(target, twiliohook.Sign(token, target, form), form.Encode())
	events, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, twiliohook.Config{Identify: func(url.Values) (twiliohook.Identity, error) {
		return twiliohook.Identity{ID: events[0].Message.Aliases[0]}, nil
	}})
	if _, err := v.Verify(t.Context(), d); webhook.RefusalOf(err) != webhook.Malformed {
		t.Errorf("Verify = %v", err)
	}
}

func TestIdentifyRefuses(t *testing.T) {
	v := newVerifier(t, twiliohook.Config{Identify: func(url.Values) (twiliohook.Identity, error) { return twiliohook.Identity{}, errors.New("not mine") }})
	form := status()
	_, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, target, form), form.Encode()))
	if webhook.RefusalOf(err) != webhook.Malformed || !strings.Contains(err.Error(), "not mine") {
		t.Errorf("Verify = %v", err)
	}
}
