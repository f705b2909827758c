package hmachook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

// withID signs a header. template says where.
func withID(template string) hmachook.Config {
	return with(simple(), func(c *hmachook.Config) {
		c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery", template
		c.TimestampHeader, c.TimestampFormat = "X-Time", hmachook.RFC3339
	})
}

// Whoever moves bytes of a captured delivery from one part to another makes a new ID of it, or another time.
func TestCase55FramingOfHeaders(t *testing.T) {
	const body, stamp = `{"a":[{}]}`, "2026-05-28T20:26:40Z"
	touching, dotted := withID("{header:x-delivery}{timestamp}{body}"), withID("{header:X-Delivery}.{timestamp}.{body}")
	last := withID("{timestamp}.{body}.{header:X-Delivery}")
	for _, test := range []struct {
		name         string
		cfg          hmachook.Config
		id           string
		moved, stamp string
		body         string
		want         webhook.Refusal
	}{
		{"from the timestamp to the id", touching, "d1", "d12", stamp[1:], body, webhook.Unsigned},
		{"from the id to the timestamp", touching, "d1", "d", "1" + stamp, body, webhook.Unsigned},
		{
			"from the id, which ends like a time, to the body", touching, "d2026-05-28T20:26:40Z", "d", stamp,
			stamp + body, webhook.Malformed,
		},
		{
			"from the id, which ends like a time and a body", touching, "d2026-05-28T20:26:40Z{}", "d", stamp,
			"{}" + stamp + body, webhook.Malformed,
		},
		{"from the body to the id", touching, "d1", "d1" + stamp + `{"a":[{}]}`, stamp, "", webhook.Unsigned},
		{"white space to the timestamp", touching, "d1", "d1", stamp + " ", body, webhook.Unsigned},
		{"from the id to the timestamp, with a separator", dotted, "d1.x", "d1", "x." + stamp, body, webhook.Unsigned},
		{"from the timestamp to the id, with a separator", dotted, "d1", "d1." + stamp, body, "", webhook.Unsigned},
		{"from the body to the id, with a separator", last, "d1", "x.d1", stamp, body[:len(body)-1], webhook.Unsigned},
	} {
		t.Run("case 55: "+test.name, func(t *testing.T) {
			v := newVerifier(t, test.cfg)
			d := delivery(body, map[string]string{"X-Delivery": test.id})
			signTo(t, v, d)
			if events, err := v.Verify(t.Context(), d); err == nil && events[0].Message.ID != test.id {
				t.Fatalf("%+v", events)
			}
			d.Header.Set("X-Delivery", test.moved)
			d.Header.Set("X-Time", test.stamp)
			d.Body = []byte(test.body)
			refused(t, v, d, test.want)
		})
	}
	t.Run("case 55: a body of digits after the id", func(t *testing.T) {
		cfg := with(simple(), func(c *hmachook.Config) {
			c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery", "{header:X-Delivery}{body}"
		})
		d := delivery(`12`, map[string]string{"X-Delivery": "d"})
		signTo(t, newVerifier(t, cfg), d)
		refused(t, newVerifier(t, cfg), d, webhook.Malformed)
	})
	for _, id := range []string{"", "a b", "ä", "a{", "a]", "a.b", "a\x00"} {
		d := delivery(body, map[string]string{"X-Delivery": id})
		signTo(t, newVerifier(t, dotted), d)
		refused(t, newVerifier(t, dotted), d, webhook.Unsigned)
	}
}

func TestCase48WrittenTimestamp(t *testing.T) {
	cfg := with(simple(), func(c *hmachook.Config) {
		c.TimestampHeader, c.TimestampFormat, c.Signed = "X-Time", hmachook.RFC3339, "{timestamp}{body}"
	})
	for _, test := range []struct {
		stamp string
		want  webhook.Refusal
	}{
		{"2026-05-28T20:26:40Z", ""},
		{"2026-05-28T20:26:40.123456789Z", ""},
		{"2026-05-28T22:26:40+02:00", ""},
		{"2026-05-28T20:21:40Z", ""},
		{"2026-05-28T20:21:39.9Z", webhook.BadTime},
		{"2026-05-28T20:31:40Z", ""},
		{"2026-05-28T20:31:40.1Z", webhook.BadTime},
		{"9999-05-28T20:31:40Z", webhook.Unsigned},
		{"0001-01-01T00:00:00Z", webhook.Unsigned},
		{"2026-05-28T20:26:40,5Z", webhook.Unsigned},
		{"2026-05-28T8:26:40Z", webhook.Unsigned},
		{"2026-05-28 20:26:40Z", webhook.Unsigned},
		{"2026-05-28T20:26:40", webhook.Unsigned},
		{"2026-05-28t20:26:40z", webhook.Unsigned},
		{"2026-13-28T20:26:40Z", webhook.Unsigned},
		{"1780000000", webhook.Unsigned},
	} {
		t.Run("case 48: "+test.stamp, func(t *testing.T) {
			const body = `{"id":"e1"}`
			d := &webhook.Delivery{Header: http.Header{}, Body: []byte(body), Time: now}
			d.Header.Set("X-Time", test.stamp)
			d.Header.Set("X-Signature", hexMAC(test.stamp+body))
			refused(t, newVerifier(t, cfg), d, test.want)
		})
	}
	if d := signed(t, cfg, `{"id":"e1"}`); d.Header.Get("X-Time") != now.UTC().Format(time.RFC3339) {
		t.Errorf("Sign wrote %q", d.Header.Get("X-Time"))
	}
}
