package twiliohook_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		// Whatever is accepted has the alias of what was signed. If its id is the same, so is its content, or it is a mismatch.
		if !cmp.Equal(got[0].Message.Aliases, want[0].Message.Aliases) {
			t.Fatalf("accepted as another event: %+v", got)
		}
	})
}
