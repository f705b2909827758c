package twiliohook_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
)

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
		{
			"E25: escapes stay as they are", "https://h.example/%7ea%2Fb?q=%20+&a",
			"https://h.example/%7ea%2Fb?q=%20+&a", true,
		},
		{"another port", "https://h.example/x", "https://h.example:8443/x", false},
		{"another host", "https://h.example/x", "https://evil.example/x", false},
		{"another path", "https://h.example/x", "https://h.example/y", false},
		{"another query", "https://h.example/x?a=1", "https://h.example/x?a=2", false},
		{"another scheme", "https://h.example/x", "http://h.example/x", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(),
				delivery(test.received, twiliohook.Sign(token, test.signed, form), form.Encode()))
			if test.ok != (err == nil) || err != nil && webhook.RefusalOf(err) != webhook.BadSignature {
				t.Errorf("Verify = %v", err)
			}
		})
	}
	for _, received := range []string{"", "/x", "ftp://h.example/x", "https:///x"} {
		t.Run("E25: no PublicURL: "+received, func(t *testing.T) {
			_, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(),
				delivery(received, twiliohook.Sign(token, received, form), form.Encode()))
			if err == nil || webhook.RefusalOf(err) != "" || !strings.Contains(err.Error(),
				"webhook.Config.PublicURL") {
				t.Errorf("Verify = %v; want an error that is no refusal and names PublicURL", err)
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
			_, err := newVerifier(t, twiliohook.Config{AuthTokens: test.tokens}).Verify(t.Context(),
				delivery(target, twiliohook.Sign(test.signer, target, form), form.Encode()))
			if (err == nil) != test.ok {
				t.Errorf("Verify = %v", err)
			}
		})
	}
}

// Twilio signs names and values without separators. A captured form that is divided anew has a valid signature, and
// must not run as a new event: it keeps its alias.
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
		{
			"AccountSid": {account}, "MessageSid": {message + "MessageStatusdelivered"}, "SmsStatus": {"delivered"},
			"To": {"+491701234567"},
		},
		{
			"AccountSid": {account + "MessageSid" + message}, "MessageStatus": {"delivered"}, "SmsStatus": {"delivered"},
			"To": {"+491701234567"},
		},
		{
			"AccountSi": {"d" + account}, "MessageSid": {message}, "MessageStatus": {"deliveredSmsStatusdelivered"},
			"To": {"+491701234567"},
		},
	} {
		again, err := v.Verify(t.Context(), delivery(target, signature, moved.Encode()))
		if err != nil {
			t.Fatalf("the signature does not fit, so this test shows nothing: %v", err)
		}
		if again[0].Message.ID == first[0].Message.ID {
			t.Fatalf("the id is the same, so this test shows nothing: %q", again[0].Message.ID)
		}
		if again[0].Message.Tenant != first[0].Message.Tenant || !cmp.Equal(again[0].Message.Aliases,
			first[0].Message.Aliases) {
			t.Errorf("case 55: a form that was divided anew is a new event: %q %v, was %q %v",
				again[0].Message.Tenant, again[0].Message.Aliases, first[0].Message.Tenant, first[0].Message.Aliases)
		}
		if _, err := newVerifier(t, twiliohook.Config{}).Verify(t.Context(),
			delivery(target, signature, moved.Encode())); webhook.RefusalOf(err) != webhook.Malformed {
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
