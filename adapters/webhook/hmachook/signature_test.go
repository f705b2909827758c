package hmachook_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

func TestCase48Tolerance(t *testing.T) {
	const body = `{"id":"e1"}`
	for _, cfg := range []hmachook.Config{
		timed(),
		with(simple(), func(c *hmachook.Config) { c.TimestampHeader, c.Signed = "X-Time", "{timestamp}.{body}" }),
	} {
		for _, test := range []struct {
			name string
			late time.Duration
			want webhook.Refusal
		}{
			{"case 48: exactly as old as allowed", 5 * time.Minute, ""},
			{"case 48: older", 5*time.Minute + 1, webhook.BadTime},
			{"case 48: exactly as new as allowed", -5 * time.Minute, ""},
			{"case 48: newer", -5*time.Minute - 1, webhook.BadTime},
		} {
			t.Run(test.name, func(t *testing.T) {
				d := signed(t, cfg, body)
				d.Time = now.Add(test.late)
				refused(t, newVerifier(t, cfg), d, test.want)
			})
		}
	}
	t.Run("case 48: another tolerance", func(t *testing.T) {
		cfg := with(timed(), func(c *hmachook.Config) { c.Tolerance = 5 * time.Second })
		d := signed(t, cfg, body)
		d.Time = now.Add(5*time.Second + 1)
		refused(t, newVerifier(t, cfg), d, webhook.BadTime)
	})
	t.Run("case 48: in the body", func(t *testing.T) {
		cfg := with(simple(), func(c *hmachook.Config) { c.TimestampPath, c.TimestampFormat = "at", hmachook.RFC3339 })
		refused(t, newVerifier(t, cfg), signed(t, cfg, `{"id":"e1","at":"2026-05-04T03:02:01Z"}`), webhook.BadTime)
		refused(t, newVerifier(t, cfg), signed(t, cfg, `{"id":"e1","at":"0001-01-01T00:00:00Z"}`), webhook.Malformed)
		refused(t, newVerifier(t, cfg), signed(t, cfg, `{"id":"e1"}`), webhook.Malformed)
	})
	for _, n := range []int64{0, 1, 999_999_999_999} {
		t.Run("E22: signed at "+strconv.FormatInt(n, 10), func(t *testing.T) {
			d := &webhook.Delivery{
				Header: newVerifier(t, timed()).Sign(target, []byte(body), time.Unix(n, 0)),
				Body:   []byte(body), Time: now,
			}
			refused(t, newVerifier(t, timed()), d, webhook.BadTime)
		})
	}
	for _, text := range []string{
		"1<<62", strconv.Itoa(1 << 62), strconv.FormatUint(math.MaxUint64, 10), "-1",
		"+1780000000", "1780000000.0", " 1780000000", "1e9", "", "１",
	} {
		t.Run("E22: the text "+text, func(t *testing.T) {
			d := signed(t, timed(), body)
			_, signature, _ := strings.Cut(d.Header.Get("X-Signature"), ";")
			d.Header.Set("X-Signature", "ts="+text+";"+signature)
			refused(t, newVerifier(t, timed()), d, webhook.Unsigned)
		})
	}
	t.Run("a changed timestamp", func(t *testing.T) {
		d := signed(t, timed(), body)
		d.Header.Set("X-Signature", strings.Replace(d.Header.Get("X-Signature"), "1780000000", "1780000001", 1))
		refused(t, newVerifier(t, timed()), d, webhook.BadSignature)
	})
}

func TestCase53Rotation(t *testing.T) {
	const body = `{"id":"e1"}`
	old, renewed := timed(), with(timed(), func(c *hmachook.Config) { c.Secrets = []string{newSecret} })
	both := with(timed(), func(c *hmachook.Config) { c.Secrets = []string{newSecret, secret} })
	twoSignatures := signed(t, old, body)
	_, second, _ := strings.Cut(signed(t, renewed, body).Header.Get("X-Signature"), ";")
	twoSignatures.Header.Set("X-Signature", twoSignatures.Header.Get("X-Signature")+";"+second)
	for _, test := range []struct {
		name string
		cfg  hmachook.Config
		d    *webhook.Delivery
		want webhook.Refusal
	}{
		{"case 53: the old secret, while both are configured", both, signed(t, old, body), ""},
		{"case 53: the new secret, while both are configured", both, signed(t, renewed, body), ""},
		{"case 53: both signatures, old secret configured", old, twoSignatures, ""},
		{"case 53: both signatures, new secret configured", renewed, twoSignatures, ""},
		{"case 53: the old secret, after it was removed", renewed, signed(t, old, body), webhook.BadSignature},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, newVerifier(t, test.cfg), test.d, test.want) })
	}
}

// Where parts of the signed text have no separator between them, bytes could be moved from one to the other.
func TestCase55Framing(t *testing.T) {
	url := with(simple(), func(c *hmachook.Config) {
		c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery",
			"{url}{body}"
	})
	adjacent := with(timed(), func(c *hmachook.Config) {
		c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery",
			"{timestamp}{body}"
	})
	for _, test := range []struct {
		name  string
		cfg   hmachook.Config
		body  string
		moved func(*webhook.Delivery)
	}{
		{"case 55: from the body to the URL", url, `{"a":{}}`, func(d *webhook.Delivery) { d.URL, d.Body = target+`{"a":`, []byte(`{}}`) }},
		{"case 55: from the URL to the body", url, `{}`, func(d *webhook.Delivery) { d.URL, d.Body = target[:len(target)-1], []byte("1{}") }},
		{"case 55: from the timestamp to the body", adjacent, `{}`, func(d *webhook.Delivery) {
			d.Header.Set("X-Signature", strings.Replace(d.Header.Get("X-Signature"), "1780000000", "178000000", 1))
			d.Body, d.Time = []byte("0{}"), time.Unix(178000000, 0)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := signed(t, test.cfg, test.body)
			d.Header.Set("X-Delivery", "d1")
			refused(t, newVerifier(t, test.cfg), d, "")
			test.moved(d)
			refused(t, newVerifier(t, test.cfg), d, webhook.Malformed)
		})
	}
	t.Run("a body of digits after the timestamp", func(t *testing.T) {
		d := signed(t, adjacent, `12`)
		d.Header.Set("X-Delivery", "d1")
		refused(t, newVerifier(t, adjacent), d, webhook.Malformed)
	})
}

func TestURLIsRequired(t *testing.T) {
	cfg := with(simple(), func(c *hmachook.Config) { c.Signed = "{url}{body}" })
	d := signed(t, cfg, `{"id":"e1"}`)
	d.URL = ""
	if _, err := newVerifier(t, cfg).Verify(t.Context(), d); err == nil || webhook.RefusalOf(err) != "" ||
		!strings.Contains(err.Error(), "webhook.Config.PublicURL") {
		t.Errorf("E25: Verify = %v; want an error that is no refusal and names PublicURL", err)
	}
	d.URL = "https://evil.example/in?shop=1"
	refused(t, newVerifier(t, cfg), d, webhook.BadSignature)
}
