package hmachook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

const (
	secret    = "a secret of the endpoint"
	newSecret = "a new secret of the endpoint"
	target    = "https://hooks.example.com/in?shop=1"
)

var now = time.Unix(1_780_000_000, 0)

// simple is the least Config.
func simple() hmachook.Config {
	return hmachook.Config{
		Name: "acme", Secrets: []string{secret}, SignatureHeader: "X-Signature", SignatureEncoding: hmachook.Hex,
		IDPaths: []string{"id"},
	}
}

// timed has a timestamp in the header of the signature.
func timed() hmachook.Config {
	cfg := simple()
	cfg.SignatureElement, cfg.ElementSeparator, cfg.TimestampElement, cfg.Signed = "h1", ";", "ts", "{timestamp}:{body}"
	return cfg
}

func with(cfg hmachook.Config, edit func(*hmachook.Config)) hmachook.Config {
	edit(&cfg)
	return cfg
}

func newVerifier(t testing.TB, cfg hmachook.Config) *hmachook.Verifier {
	t.Helper()
	v, err := hmachook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// signed returns a delivery of body.
func signed(t testing.TB, cfg hmachook.Config, body string) *webhook.Delivery {
	t.Helper()
	return &webhook.Delivery{
		Header: newVerifier(t, cfg).Sign(target, []byte(body), now), Body: []byte(body),
		URL: target, Time: now,
	}
}

func refused(t *testing.T, v *hmachook.Verifier, d *webhook.Delivery, want webhook.Refusal) {
	t.Helper()
	events, err := v.Verify(t.Context(), d)
	if got := webhook.RefusalOf(err); got != want || (err == nil) != (want == "") || err != nil && events != nil {
		t.Errorf("Verify = %v, %v; want a refusal %q", events, err, want)
	}
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error shows the secret: %v", err)
	}
}

func TestVerify(t *testing.T) {
	zero := &dedup.Fingerprint{}
	for _, test := range []struct {
		name string
		cfg  hmachook.Config
		body string
		want consumer.Message
	}{
		{"the least config", simple(), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a prefix and base64", with(simple(), func(c *hmachook.Config) {
			c.SignaturePrefix, c.SignatureEncoding = "sha256=", hmachook.Base64
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{
			"SHA-512", with(simple(), func(c *hmachook.Config) { c.Hash = hmachook.SHA512 }), `{"id":"e1"}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"},
		},
		{"SHA-1, if it is accepted", with(simple(), func(c *hmachook.Config) {
			c.Hash, c.AcceptedRisks = hmachook.SHA1, []hmachook.Risk{hmachook.RiskSHA1}
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a hexadecimal secret", with(simple(), func(c *hmachook.Config) {
			c.Secrets, c.SecretEncoding = []string{"00112233445566778899aabbccddeeff"}, hmachook.Hex
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{
			"a timestamp in the signature's header", timed(), `{"id":"e1"}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"},
		},
		{"a timestamp in its own header, in milliseconds", with(simple(), func(c *hmachook.Config) {
			c.TimestampHeader, c.TimestampFormat, c.Signed = "X-Time", hmachook.UnixMillis, "v0:{timestamp}:{body}"
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{
			"a timestamp in the body", with(simple(), func(c *hmachook.Config) { c.TimestampPath = "sent.at" }),
			`{"id":"e1","sent":{"at":1780000000}}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"},
		},
		{
			"E25: the URL", with(simple(), func(c *hmachook.Config) { c.Signed = "{url}{body}" }), `{"id":"e1"}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"},
		},
		{
			"E26: fields of the body", with(simple(), func(c *hmachook.Config) {
				c.IDPaths, c.TopicPath, c.Scope, c.ScopePath, c.CreatedPath = []string{"event.id"}, "event.type",
					"live", "account", "event.at"
			}), `{"account":"a/1","event":{"id":9007199254740993,"type":"paid","at":"2026-05-04T03:02:01.5+02:00"}}`,
			consumer.Message{
				ID: "9007199254740993", Tenant: "acme/live/a/1", Topic: "paid",
				Time: time.Date(2026, 5, 4, 1, 2, 1, 5e8, time.UTC),
			},
		},
		{
			"a creation time in milliseconds", with(simple(),
				func(c *hmachook.Config) { c.CreatedPath, c.CreatedFormat = "at", hmachook.UnixMillis }),
			`{"id":"e1","at":1780000000123}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme", Time: time.UnixMilli(1780000000123)},
		},
		{
			"an id of several fields", with(simple(),
				func(c *hmachook.Config) { c.IDPaths = []string{"a", "b", "ok"} }),
			`{"a":"x:y","b":"\\","ok":true}`,
			consumer.Message{ID: `x\:y:\\:true`, Tenant: "acme", Topic: "acme"},
		},
		{
			"a fixed topic", with(simple(), func(c *hmachook.Config) { c.Topic = "orders" }), `{"id":"e1"}`,
			consumer.Message{ID: "e1", Tenant: "acme", Topic: "orders"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := newVerifier(t, test.cfg).Verify(t.Context(), signed(t, test.cfg, test.body))
			if err != nil {
				t.Fatal(err)
			}
			test.want.Payload, test.want.Fingerprint = []byte(test.body), zero
			if diff := cmp.Diff([]webhook.Event{{Message: test.want}}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	const body = `{"id":"e1"}`
	header := func(cfg hmachook.Config, edit func(http.Header)) *webhook.Delivery {
		d := signed(t, cfg, body)
		edit(d.Header)
		return d
	}
	changed := func(cfg hmachook.Config, body string) *webhook.Delivery {
		d := signed(t, cfg, `{"id":"e1"}`)
		d.Body = []byte(body)
		return d
	}
	replace := func(old, replacement string) func(http.Header) {
		return func(h http.Header) {
			before := h.Get("X-Signature")
			if h.Set("X-Signature", strings.Replace(before, old, replacement, 1)); h.Get("X-Signature") == before {
				t.Fatalf("%q is not in %q", old, before)
			}
		}
	}
	for _, test := range []struct {
		name string
		cfg  hmachook.Config
		d    *webhook.Delivery
		want webhook.Refusal
	}{
		{
			"case 47: no signature", simple(), header(simple(), func(h http.Header) { h.Del("X-Signature") }),
			webhook.Unsigned,
		},
		{
			"case 47: an empty signature", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", "") }),
			webhook.Unsigned,
		},
		{"case 47: two signature headers", simple(), header(simple(), func(h http.Header) { h.Add("X-Signature", h.Get("X-Signature")) }), webhook.Unsigned},
		{"case 47: no signature among the elements", timed(), header(timed(), replace("h1=", "h0=")), webhook.Unsigned},
		{"case 47: no timestamp", timed(), header(timed(), replace("ts=", "tt=")), webhook.Unsigned},
		{"case 47: two timestamps", timed(), header(timed(), replace("ts=", "ts=1;ts=")), webhook.Unsigned},
		{
			"case 47: many elements", timed(), header(timed(), replace("ts=", strings.Repeat("x=;", 32)+"ts=")),
			webhook.Unsigned,
		},
		{"case 47: many elements after the signature", timed(), header(timed(), func(h http.Header) {
			h.Set("X-Signature", h.Get("X-Signature")+strings.Repeat(";x=", 31))
		}), webhook.Unsigned},
		{"case 47: an element without =", timed(), header(timed(), replace("ts=", "x;ts=")), webhook.Unsigned},
		{"case 49: a new line", simple(), changed(simple(), body+"\n"), webhook.BadSignature},
		{"case 49: a byte order mark", simple(), changed(simple(), "\ufeff"+body), webhook.BadSignature},
		{"case 49: JSON written anew", simple(), changed(simple(), `{"id": "e1"}`), webhook.BadSignature},
		{"case 50: SHA-1 instead of SHA-256", simple(), signed(t, with(simple(), func(c *hmachook.Config) {
			c.Hash, c.AcceptedRisks = hmachook.SHA1, []hmachook.Risk{hmachook.RiskSHA1}
		}), body), webhook.Unsigned},
		{"case 50: another prefix", with(simple(), func(c *hmachook.Config) { c.SignaturePrefix = "sha256=" }), header(simple(), func(h http.Header) {
			h.Set("X-Signature", "sha1="+h.Get("X-Signature"))
		}), webhook.Unsigned},
		{"case 51: a truncated signature", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", h.Get("X-Signature")[:62]) }), webhook.Unsigned},
		{"case 51: a signature of one byte", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", "00") }), webhook.Unsigned},
		{"case 51: no hexadecimal", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", strings.Repeat("z", 64)) }), webhook.Unsigned},
		{"case 51: a wrong signature", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", strings.Repeat("0", 64)) }), webhook.BadSignature},
		{"case 55: digits moved from the timestamp", timed(), func() *webhook.Delivery {
			d := signed(t, timed(), body)
			d.Header.Set("X-Signature", strings.Replace(d.Header.Get("X-Signature"), "ts=1780000000",
				"ts=178000000", 1))
			d.Body = []byte("0:" + body)
			return d
		}(), webhook.BadSignature},
		{"case 71: the id occurs twice", simple(), signed(t, simple(), `{"id":"e1","id":"e2"}`), webhook.Malformed},
		{
			"case 71: the id occurs twice in other case", simple(), signed(t, simple(), `{"ID":"e1","id":"e2"}`),
			webhook.Malformed,
		},
		{
			"case 71: the object around the id occurs twice",
			with(simple(), func(c *hmachook.Config) { c.IDPaths = []string{"a.id"} }),
			signed(t, with(simple(), func(c *hmachook.Config) { c.IDPaths = []string{"a.id"} }),
				`{"a":{"id":"e1"},"A":{"id":"e2"}}`), webhook.Malformed,
		},
		{"case 71: a fraction", simple(), signed(t, simple(), `{"id":1.0}`), webhook.Malformed},
		{"case 71: deep nesting", simple(), signed(t, simple(), `{"id":"e1","a":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`}`), webhook.Malformed},
		{"case 71: invalid UTF-8", simple(), signed(t, simple(), "{\"id\":\"e\xff\"}"), webhook.Malformed},
		{"case 71: a surrogate alone", simple(), signed(t, simple(), `{"id":"\ud800"}`), webhook.Malformed},
		{"case 71: true", simple(), signed(t, simple(), `{"id":true}`), webhook.Malformed},
		{"case 71: null", simple(), signed(t, simple(), `{"id":null}`), webhook.Malformed},
		{"case 71: no object", simple(), signed(t, simple(), `[1]`), webhook.Malformed},
		{"case 71: no JSON", simple(), signed(t, simple(), `id=1`), webhook.Malformed},
		{"case 71: no body", simple(), signed(t, simple(), ``), webhook.Malformed},
		{
			"case 72: a long id", simple(), signed(t, simple(), `{"id":"`+strings.Repeat("x", 256)+`"}`),
			webhook.Malformed,
		},
		{"case 72: NUL in the id", simple(), signed(t, simple(), `{"id":"a\u0000b"}`), webhook.Malformed},
		{"case 72: an empty id", simple(), signed(t, simple(), `{"id":""}`), webhook.Malformed},
		{"case 72: no id", simple(), signed(t, simple(), `{}`), webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, newVerifier(t, test.cfg), test.d, test.want) })
	}
}
