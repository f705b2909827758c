package twiliohook_test

import (
	"net/url"
	"reflect"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"

	"github.com/txonce/txonce/adapters/webhook/twiliohook"
)

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
		// Whatever is accepted has the alias of what was signed. If its id is the same, so is its content, or it is a
		// mismatch.
		if !reflect.DeepEqual(got[0].Message.Aliases, want[0].Message.Aliases) {
			t.Fatalf("accepted as another event: %+v", got)
		}
	})
}

// FuzzForm signs what the fuzzer makes. What is accepted has an id of Twilio's form, and its payload is the same event
// again.
func FuzzForm(f *testing.F) {
	v := newVerifier(f, twiliohook.Config{})
	f.Add("MessageSid=" + message + "&MessageStatus=sent")
	f.Add("CallSid=" + call + "&CallStatus=completed&a=2&a=1&a=2")
	f.Add("a;b=%zz")
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		verify := func(body string) []webhook.Event {
			events, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, target, form), body))
			if err != nil && webhook.RefusalOf(err) != webhook.Malformed {
				t.Fatalf("%q: %v", body, err)
			}
			return events
		}
		events := verify(body)
		if events == nil {
			return
		}
		if id := events[0].Message.ID; len(id) < 36 || id[34] != ':' {
			t.Errorf("%q has the id %q", body, id)
		}
		if again := verify(string(events[0].Message.Payload)); !reflect.DeepEqual(events, again) {
			t.Errorf("%q became %+v, and its payload %+v", body, events, again)
		}
	})
}
