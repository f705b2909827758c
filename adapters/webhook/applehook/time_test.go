package applehook_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
)

// Signed times. The certificates of these chains are valid in 2026 and 2027.
func TestVerifyTime(t *testing.T) {
	c := newChain(t)
	date := func(v any) []byte { return body(t, c.sign(t, with(notification(), m{"signedDate": v}))) }
	raw := func(s string) []byte { return date(json.RawMessage(s)) }
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"case 57: 0", date(0), webhook.BadTime, "signedDate"},
		{"case 57: a time of 1970", date(1), webhook.BadSignature, "not yet valid"},
		{"case 57: the past", date(notBefore.Add(-time.Second).UnixMilli()), webhook.BadSignature, "not yet valid"},
		{"case 57: seconds instead of milliseconds", date(signed.Unix()), webhook.BadSignature, "not yet valid"},
		{"case 57: the far future", date(notAfter.AddDate(100, 0, 0).UnixMilli()), webhook.BadSignature, "expired"},
		{"case 57: after the year 9000", raw("999999999999999999"), webhook.BadTime, "signedDate"},
		{"E22: 2^62", raw("4611686018427387904"), webhook.BadTime, "signedDate"},
		{"E22: -2^63", raw("-9223372036854775808"), webhook.BadTime, "signedDate"},
		{"case 57: negative", date(-signed.UnixMilli()), webhook.BadTime, "signedDate"},
		{"case 57: a string", date("1772600765000"), webhook.BadTime, "signedDate"},
		{"case 57: 1e30", raw("1e30"), webhook.BadTime, "signedDate"},
		{"case 57: 1.5", raw("1772600765000.5"), webhook.BadTime, "signedDate"},
		{"case 57: an exponent", raw("1.772600765e12"), webhook.BadTime, "signedDate"},
		{"case 57: an object", raw("{}"), webhook.BadTime, "signedDate"},
		{"case 57: true", raw("true"), webhook.BadTime, "signedDate"},
		{
			"5 minutes and 1 ms ahead", date(received.Add(5*time.Minute + time.Millisecond).UnixMilli()), webhook.BadTime,
			"ahead",
		},
		{
			"MaxAge and 1 ms ago", date(received.Add(-30*24*time.Hour - time.Millisecond).UnixMilli()), webhook.BadTime,
			"MaxAge",
		},
	})
	for _, tt := range []struct {
		name string
		body []byte
		at   time.Time
	}{
		{"exactly 5 minutes ahead", date(received.Add(5 * time.Minute).UnixMilli()), received},
		{"exactly MaxAge ago", date(received.Add(-30 * 24 * time.Hour).UnixMilli()), received},
		{"Apple's last retry", date(received.Add(-157 * time.Hour).UnixMilli()), received},
		{
			"case 57: an expired leaf, but the signed date is inside of its validity",
			date(notAfter.Add(-time.Hour).UnixMilli()), notAfter.Add(24 * time.Hour),
		},
		{"R5: no signed date, so the time of the delivery counts", date(nil), received},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := verifyAt(t, newVerifier(t, c), tt.body, tt.at); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("R5: no signed date, and the leaf has expired", func(t *testing.T) {
		if _, err := verifyAt(t, newVerifier(t, c), date(nil),
			notAfter.Add(time.Hour)); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Error(err)
		}
	})
	t.Run("a forged bad time is a bad signature", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, newChain(t)),
			raw("1e30")); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Error(err)
		}
	})
}
