package twiliohook_test

import (
	"encoding/json"
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
	return url.Values{"AccountSid": {account}, "MessageSid": {message}, "MessageStatus": {"delivered"}, "SmsStatus": {"delivered"}, "To": {"+491701234567"}}
}

func delivery(at, signature, body string) *webhook.Delivery {
	d := &webhook.Delivery{Header: http.Header{}, URL: at, Body: []byte(body), Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
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
		{name: "E24: the status of a message, as a form", form: status(), id: message + ":delivered", topic: "message.delivered"},
		{
			name: "an incoming message",
			form: url.Values{"MessageSid": {message}, "SmsStatus": {"received"}, "Body": {"50% off & more; ü"}, "From": {"+1"}},
			id:   message + ":received", topic: "message.received",
		},
		{name: "a call", form: url.Values{"CallSid": {call}, "CallStatus": {"in-progress"}}, id: call + ":in-progress", topic: "call.in-progress"},
		{name: "E25: signed with the port", form: status(), signed: "https://hooks.example.com:443/twilio?order=42", id: message + ":delivered", topic: "message.delivered"},
		{
			name: "E25: repeated parameters",
			form: url.Values{"CallSid": {call}, "CallStatus": {"completed"}, "MediaUrl": {"b", "a", "b"}}, id: call + ":completed", topic: "call.completed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			signed := test.signed
			if signed == "" {
				signed = target
			}
			got, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), delivery(target, twiliohook.Sign(token, signed, test.form), test.form.Encode()))
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
			if got[0].Message.Fingerprint == nil || got[0].Message.Fingerprint.IsZero() || len(got[0].Message.Aliases) != 1 {
				t.Errorf("fingerprint %v, aliases %v", got[0].Message.Fingerprint, got[0].Message.Aliases)
			}
			got[0].Message.Payload, got[0].Message.Fingerprint, got[0].Message.Aliases = nil, nil, nil
			if diff := cmp.Diff([]webhook.Event{{Message: consumer.Message{
				ID: test.id, Topic: test.topic, Tenant: "twilio", Headers: map[string]string{"twilio-url": target}, // E26: no Time
			}}}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestURL(t *testing.T) {
	form := status()
	for _, test := range []struct {
		name, received, signed string
		ok                     bool
	}{
		{"E25: the same", "https://h.example/x", "https://h.example/x", true},
		{"E25: a port only in the signed URL", "https://h.example/x", "https://h.example:443/x", true},
		{"E25: a port only in the received URL", "https://h.example:8443/x", "https://h.example/x", true},
		{"E25: a port in both", "https://h.example:8443/x", "https://h.example:8443/x", true},
		{"E25: http", "http://h.example/x", "http://h.example:80/x", true},
		{"E25: IPv6", "https://[::1]/x", "https://[::1]:443/x", true},
		{"E25: a colon in the query", "https://h.example?a=b:c", "https://h.example:443?a=b:c", true},
		{"E25: a user", "https://u:p@h.example/x", "https://u:p@h.example:443/x", true},
		{"E25: escapes stay as they are", "https://h.example/%7ea%2Fb?q=%20+&a", "https://h.example/%7ea%2Fb?q=%20+&a", true},
		{"another port", "https://h.example/x", "https://h.example:8443/x", false},
		{"another host", "https://h.example/x", "https://evil.example/x", false},
		{"another path", "https://h.example/x", "https://h.example/y", false},
		{"another query", "https://h.example/x?a=1", "https://h.example/x?a=2", false},
		{"another scheme", "https://h.example/x", "http://h.example/x", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), delivery(test.received, twiliohook.Sign(token, test.signed, form), form.Encode()))
			if test.ok != (err == nil) || err != nil && webhook.RefusalOf(err) != webhook.BadSignature {
				t.Errorf("Verify = %v", err)
			}
		})
	}
	for _, received := range []string{"", "/x", "ftp://h.example/x", "https:///x"} {
		t.Run("E25: no PublicURL: "+received, func(t *testing.T) {
			_, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), delivery(received, twiliohook.Sign(token, received, form), form.Encode()))
			if err == nil || webhook.RefusalOf(err) != "" || !strings.Contains(err.Error(), "webhook.Config.PublicURL") {
				t.Errorf("Verify = %v; want an error that is no refusal and names PublicURL", err)
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
		{"case 50: another token", delivery(target, twiliohook.Sign(newToken, target, form), body), webhook.BadSignature},
		{"case 50: JSON at an endpoint for forms", delivery(jsonURL, jsonSignature, `{}`), webhook.BadSignature},
		{"case 51: a truncated signature", delivery(target, signature[:20], body), webhook.Unsigned},
		{"case 51: a signature without padding", delivery(target, strings.TrimRight(signature, "="), body), webhook.Unsigned},
		{"case 51: a long signature", delivery(target, signature+signature, body), webhook.Unsigned},
		{"case 71: two ids", signedForm(url.Values{"MessageSid": {message, "SM00000000000000000000000000000009"}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{"case 71: two statuses", signedForm(url.Values{"MessageSid": {message}, "MessageStatus": {"sent", "failed"}}), webhook.Malformed},
		{"case 71: invalid UTF-8 in the id", signedForm(url.Values{"MessageSid": {message + "\xff"}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{"case 72: a long id", signedForm(url.Values{"MessageSid": {strings.Repeat("a", 256)}, "MessageStatus": {"sent"}}), webhook.Malformed},
		{"case 72: NUL in the id", signedForm(url.Values{"MessageSid": {message + "\x00"}, "MessageStatus": {"sent"}}), webhook.Malformed},
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

func TestCase53Rotation(t *testing.T) {
	form := status()
	for _, test := range []struct {
		name   string
		tokens []string
		signer string
		ok     bool
	}{
		{"case 53: the old token, while both are configured", []string{newToken, token}, token, true},
		{"case 53: the new token, while both are configured", []string{newToken, token}, newToken, true},
		{"case 53: the old token, after it was removed", []string{newToken}, token, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newVerifier(t, twiliohook.Config{AuthTokens: test.tokens}).Verify(t.Context(), delivery(target, twiliohook.Sign(test.signer, target, form), form.Encode()))
			if (err == nil) != test.ok {
				t.Errorf("Verify = %v", err)
			}
		})
	}
}

// Twilio signs names and values without separators. A captured form that is divided anew has a valid signature, and must not run as a
// new event: it keeps its alias.
func TestCase55Framing(t *testing.T) {
	v := newVerifier(t, twiliohook.Config{Identify: func(form url.Values) (twiliohook.Identity, error) {
		return twiliohook.Identity{ID: form.Get("MessageSid") + "/" + form.Get("MessageStatus"), Topic: "message"}, nil
	}})
	form := status()
	signature := twiliohook.Sign(token, target, form)
	first, err := v.Verify(t.Context(), delivery(target, signature, form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	for _, moved := range []url.Values{
		{"AccountSid": {account}, "MessageSid": {message + "MessageStatusdelivered"}, "SmsStatus": {"delivered"}, "To": {"+491701234567"}},
		{"AccountSid": {account + "MessageSid" + message}, "MessageStatus": {"delivered"}, "SmsStatus": {"delivered"}, "To": {"+491701234567"}},
		{"AccountSi": {"d" + account}, "MessageSid": {message}, "MessageStatus": {"deliveredSmsStatusdelivered"}, "To": {"+491701234567"}},
	} {
		again, err := v.Verify(t.Context(), delivery(target, signature, moved.Encode()))
		if err != nil {
			t.Fatalf("the signature does not fit, so this test shows nothing: %v", err)
		}
		if again[0].Message.ID == first[0].Message.ID {
			t.Fatalf("the id is the same, so this test shows nothing: %q", again[0].Message.ID)
		}
		if again[0].Message.Tenant != first[0].Message.Tenant || !cmp.Equal(again[0].Message.Aliases, first[0].Message.Aliases) {
			t.Errorf("case 55: a form that was divided anew is a new event: %q %v, was %q %v",
				again[0].Message.Tenant, again[0].Message.Aliases, first[0].Message.Tenant, first[0].Message.Aliases)
		}
		if _, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(), delivery(target, signature, moved.Encode())); webhook.RefusalOf(err) != webhook.Malformed {
			t.Errorf("case 55: StatusOf took %v: %v", moved, err)
		}
	}
	t.Run("a redelivery that is signed with a port has the same alias", func(t *testing.T) {
		withPort := strings.Replace(target, ".com/", ".com:443/", 1)
		again, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, withPort, form), form.Encode()))
		if err != nil || !cmp.Equal(again[0].Message.Aliases, first[0].Message.Aliases) {
			t.Errorf("%v, %v", again, err)
		}
	})
	t.Run("another event has another alias", func(t *testing.T) {
		form.Set("MessageStatus", "read")
		other, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, target, form), form.Encode()))
		if err != nil || cmp.Equal(other[0].Message.Aliases, first[0].Message.Aliases) {
			t.Errorf("%v, %v", other, err)
		}
	})
}

// The order of parameters is not signed, so the payload must not depend on it.
func TestPayloadIsCanonical(t *testing.T) {
	v := newVerifier(t, twiliohook.Config{})
	form := url.Values{"CallSid": {call}, "CallStatus": {"completed"}, "A": {"2", "1"}}
	signature := twiliohook.Sign(token, target, form)
	var first *webhook.Event
	for _, body := range []string{
		"A=1&A=2&CallSid=" + call + "&CallStatus=completed", "CallStatus=completed&A=2&CallSid=" + call + "&A=1&A=1",
	} {
		got, err := v.Verify(t.Context(), delivery(target, signature, body))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = &got[0]
		}
		if diff := cmp.Diff(*first, got[0]); diff != "" {
			t.Errorf("(-first +second)\n%s", diff)
		}
	}
}

func TestJSON(t *testing.T) {
	type item struct {
		ID   string    `json:"id"`
		Type string    `json:"type"`
		Time time.Time `json:"time"`
	}
	v := newVerifier(t, twiliohook.Config{IdentifyJSON: func(body []byte) ([]twiliohook.Identity, error) {
		var raw []json.RawMessage
		if err := json.Unmarshal(body, &raw); err != nil {
			return nil, err
		}
		identities := make([]twiliohook.Identity, len(raw))
		for i := range raw {
			var it item
			if err := json.Unmarshal(raw[i], &it); err != nil {
				return nil, err
			}
			identities[i] = twiliohook.Identity{ID: it.ID, Topic: it.Type, Time: it.Time, Payload: raw[i]}
		}
		return identities, nil
	}})
	body := `[{"id":"EZ1","type":"sent","time":"2026-05-04T03:02:01Z"}, {"id":"EZ2","type":"failed","time":"2026-05-04T03:02:02Z"}]`
	signed, signature := twiliohook.SignJSON(token, target, []byte(body))
	t.Run("case 67: an event for each item", func(t *testing.T) {
		got, err := v.Verify(t.Context(), delivery(signed, signature, body))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Message.ID != "EZ1" || got[1].Message.ID != "EZ2" || got[1].Message.Topic != "failed" ||
			string(got[1].Message.Payload) != body[strings.LastIndex(body, "{"):len(body)-1] ||
			*got[0].Message.Fingerprint == *got[1].Message.Fingerprint || !got[0].Message.Time.Equal(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)) {
			t.Errorf("%+v", got)
		}
	})
	reSign := func(body string) *webhook.Delivery {
		signed, signature := twiliohook.SignJSON(token, target, []byte(body))
		return delivery(signed, signature, body)
	}
	plain := "https://hooks.example.com/twilio"
	twice := signed + "&bodySHA256=" + strings.Repeat("0", 64)
	form := status()
	for _, test := range []struct {
		name string
		d    *webhook.Delivery
		want webhook.Refusal
	}{
		{"E25: the body is not the one that was signed", delivery(signed, signature, body+" "), webhook.BadSignature},
		{"E25: no bodySHA256", delivery(plain, twiliohook.Sign(token, plain, nil), body), webhook.Unsigned},
		{"E25: two bodySHA256", delivery(twice, twiliohook.Sign(token, twice, nil), body), webhook.Unsigned},
		{"E25: another bodySHA256", delivery(strings.Replace(signed, "SHA256=", "SHA256=0", 1), signature, body), webhook.BadSignature},
		{"a form", delivery(target, twiliohook.Sign(token, target, form), form.Encode()), webhook.BadSignature},
		{"no items", reSign(`[]`), webhook.Malformed},
		{"no array", reSign(`{}`), webhook.Malformed},
		{"case 71: deep nesting", reSign(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), webhook.Malformed},
		{"case 72: an empty id", reSign(`[{}]`), webhook.Malformed},
		{"case 72: NUL in an id", reSign(`[{"id":"a\u0000"}]`), webhook.Malformed},
		{"case 72: a long id", reSign(`[{"id":"` + strings.Repeat("a", 256) + `"}]`), webhook.Malformed},
		{"case 71: a surrogate alone", reSign(`[{"id":"\ud800"}]`), webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, err := v.Verify(t.Context(), test.d)
			if got := webhook.RefusalOf(err); got != test.want || events != nil {
				t.Errorf("Verify = %v, %v; want a refusal %q", events, err, test.want)
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

func TestConfig(t *testing.T) {
	identify := func(url.Values) (twiliohook.Identity, error) { return twiliohook.Identity{}, errors.New("no") }
	identifyJSON := func([]byte) ([]twiliohook.Identity, error) { return nil, errors.New("no") }
	const copyIt = ": copy the account's auth token from the Twilio console"
	for _, test := range []struct {
		name string
		cfg  twiliohook.Config
		want string
	}{
		{"case 52: no token", twiliohook.Config{}, "twiliohook: Config.AuthTokens is required" + copyIt},
		{"case 52: an empty token", twiliohook.Config{AuthTokens: []string{token, ""}}, "twiliohook: Config.AuthTokens[1] is empty" + copyIt},
		{"case 52: white space", twiliohook.Config{AuthTokens: []string{" \n\t                                    "}}, "twiliohook: Config.AuthTokens[0] is empty" + copyIt},
		{"case 52: a line break at the end", twiliohook.Config{AuthTokens: []string{token + "\n"}}, "twiliohook: Config.AuthTokens[0] begins or ends with white space" + copyIt},
		{"case 52: a short token", twiliohook.Config{AuthTokens: []string{token[1:]}}, "twiliohook: Config.AuthTokens[0] is shorter than 32 bytes" + copyIt},
		{"an account", twiliohook.Config{AuthTokens: []string{token}, AccountSids: []string{"x"}}, `twiliohook: Config.AccountSids[0] is "x": want AC and 32 hexadecimal digits`},
		{"forms and JSON", twiliohook.Config{AuthTokens: []string{token}, Identify: identify, IdentifyJSON: identifyJSON}, "twiliohook: Config.IdentifyJSON and Config.Identify are both set: use one endpoint for JSON and another one for forms"},
		{"accounts and JSON", twiliohook.Config{AuthTokens: []string{token}, AccountSids: []string{account}, IdentifyJSON: identifyJSON}, "twiliohook: Config.AccountSids has no effect with IdentifyJSON: let IdentifyJSON refuse other accounts"},
		{"E24: a redirect as the reply", twiliohook.Config{AuthTokens: []string{token}, Reply: webhook.Reply{Status: 302}}, "twiliohook: Config.Reply.Status is 302: want a status from 200 to 299, or 0 for 200"},
		{"a negative deadline", twiliohook.Config{AuthTokens: []string{token}, Deadline: -1}, "twiliohook: Config.Deadline is -1ns: want more than 0, or 0 for the default"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := twiliohook.New(test.cfg)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestSource(t *testing.T) {
	want := webhook.Source{Name: "twilio", Horizon: 400 * 24 * time.Hour, Deadline: 15 * time.Second, Reply: webhook.Reply{Status: 204}}
	if diff := cmp.Diff(want, newVerifier(t, twiliohook.Config{}).Source()); diff != "" {
		t.Errorf("E24, E26 (-want +got)\n%s", diff)
	}
	want.Deadline, want.Reply = time.Second, webhook.Reply{Status: 200, ContentType: "text/xml", Body: []byte("<Response/>")}
	if diff := cmp.Diff(want, newVerifier(t, twiliohook.Config{Deadline: time.Second, Reply: twiliohook.EmptyTwiML()}).Source()); diff != "" {
		t.Errorf("E24 (-want +got)\n%s", diff)
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

func FuzzVerify(f *testing.F) {
	v := newVerifier(f, twiliohook.Config{})
	form := url.Values{"MessageSid": {message}, "MessageStatus": {"sent"}, "Body": {"MessageSidSM0"}, "M": {"b", "a"}}
	body, signature := form.Encode(), twiliohook.Sign(token, target, form)
	want, err := v.Verify(f.Context(), delivery(target, signature, body))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint16(0), "a=b&", target)
	f.Add(uint16(5), uint16(2), "%41", "https://hooks.example.com:443/twilio?order=42")
	f.Add(uint16(0), uint16(65535), "MessageSid=%00", "https://[::1")
	f.Fuzz(func(t *testing.T, at, cut uint16, patch, received string) {
		from := min(int(at), len(body))
		to := min(from+int(cut), len(body))
		got, err := v.Verify(t.Context(), delivery(received, signature, body[:from]+patch+body[to:]))
		if err != nil {
			return
		}
		// Whatever is accepted has the alias of what was signed. If its id is the same, so is its content, or it is a mismatch.
		if !cmp.Equal(got[0].Message.Aliases, want[0].Message.Aliases) {
			t.Fatalf("accepted as another event: %+v", got)
		}
	})
}
