package hmachook_test

import (
	"maps"
	"math"
	"net/http"
	"strconv"
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
		Name: "acme", Secrets: []string{secret}, SignatureHeader: "X-Signature", SignatureEncoding: hmachook.Hex, IDPaths: []string{"id"},
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
	return &webhook.Delivery{Header: newVerifier(t, cfg).Sign(target, []byte(body), now), Body: []byte(body), URL: target, Time: now}
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
		{"SHA-512", with(simple(), func(c *hmachook.Config) { c.Hash = hmachook.SHA512 }), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"SHA-1, if it is accepted", with(simple(), func(c *hmachook.Config) {
			c.Hash, c.AcceptedRisks = hmachook.SHA1, []hmachook.Risk{hmachook.RiskSHA1}
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a hexadecimal secret", with(simple(), func(c *hmachook.Config) {
			c.Secrets, c.SecretEncoding = []string{"00112233445566778899aabbccddeeff"}, hmachook.Hex
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a timestamp in the signature's header", timed(), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a timestamp in its own header, in milliseconds", with(simple(), func(c *hmachook.Config) {
			c.TimestampHeader, c.TimestampFormat, c.Signed = "X-Time", hmachook.UnixMillis, "v0:{timestamp}:{body}"
		}), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"a timestamp in the body", with(simple(), func(c *hmachook.Config) { c.TimestampPath = "sent.at" }),
			`{"id":"e1","sent":{"at":1780000000}}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"E25: the URL", with(simple(), func(c *hmachook.Config) { c.Signed = "{url}{body}" }), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme"}},
		{"E26: fields of the body", with(simple(), func(c *hmachook.Config) {
			c.IDPaths, c.TopicPath, c.Scope, c.ScopePath, c.CreatedPath = []string{"event.id"}, "event.type", "live", "account", "event.at"
		}), `{"account":"a/1","event":{"id":9007199254740993,"type":"paid","at":"2026-05-04T03:02:01.5+02:00"}}`,
			consumer.Message{ID: "9007199254740993", Tenant: "acme/live/a/1", Topic: "paid", Time: time.Date(2026, 5, 4, 1, 2, 1, 5e8, time.UTC)}},
		{"a creation time in milliseconds", with(simple(), func(c *hmachook.Config) { c.CreatedPath, c.CreatedFormat = "at", hmachook.UnixMillis }),
			`{"id":"e1","at":1780000000123}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "acme", Time: time.UnixMilli(1780000000123)}},
		{"an id of several fields", with(simple(), func(c *hmachook.Config) { c.IDPaths = []string{"a", "b", "ok"} }),
			`{"a":"x:y","b":"\\","ok":true}`, consumer.Message{ID: `x\:y:\\:true`, Tenant: "acme", Topic: "acme"}},
		{"a fixed topic", with(simple(), func(c *hmachook.Config) { c.Topic = "orders" }), `{"id":"e1"}`, consumer.Message{ID: "e1", Tenant: "acme", Topic: "orders"}},
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
		{"case 47: no signature", simple(), header(simple(), func(h http.Header) { h.Del("X-Signature") }), webhook.Unsigned},
		{"case 47: an empty signature", simple(), header(simple(), func(h http.Header) { h.Set("X-Signature", "") }), webhook.Unsigned},
		{"case 47: two signature headers", simple(), header(simple(), func(h http.Header) { h.Add("X-Signature", h.Get("X-Signature")) }), webhook.Unsigned},
		{"case 47: no signature among the elements", timed(), header(timed(), replace("h1=", "h0=")), webhook.Unsigned},
		{"case 47: no timestamp", timed(), header(timed(), replace("ts=", "tt=")), webhook.Unsigned},
		{"case 47: two timestamps", timed(), header(timed(), replace("ts=", "ts=1;ts=")), webhook.Unsigned},
		{"case 47: many elements", timed(), header(timed(), replace("ts=", strings.Repeat("x=;", 32)+"ts=")), webhook.Unsigned},
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
			d.Header.Set("X-Signature", strings.Replace(d.Header.Get("X-Signature"), "ts=1780000000", "ts=178000000", 1))
			d.Body = []byte("0:" + body)
			return d
		}(), webhook.BadSignature},
		{"case 71: the id occurs twice", simple(), signed(t, simple(), `{"id":"e1","id":"e2"}`), webhook.Malformed},
		{"case 71: the id occurs twice in other case", simple(), signed(t, simple(), `{"ID":"e1","id":"e2"}`), webhook.Malformed},
		{"case 71: the object around the id occurs twice", with(simple(), func(c *hmachook.Config) { c.IDPaths = []string{"a.id"} }),
			signed(t, with(simple(), func(c *hmachook.Config) { c.IDPaths = []string{"a.id"} }), `{"a":{"id":"e1"},"A":{"id":"e2"}}`), webhook.Malformed},
		{"case 71: a fraction", simple(), signed(t, simple(), `{"id":1.0}`), webhook.Malformed},
		{"case 71: deep nesting", simple(), signed(t, simple(), `{"id":"e1","a":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`}`), webhook.Malformed},
		{"case 71: invalid UTF-8", simple(), signed(t, simple(), "{\"id\":\"e\xff\"}"), webhook.Malformed},
		{"case 71: a surrogate alone", simple(), signed(t, simple(), `{"id":"\ud800"}`), webhook.Malformed},
		{"case 71: true", simple(), signed(t, simple(), `{"id":true}`), webhook.Malformed},
		{"case 71: null", simple(), signed(t, simple(), `{"id":null}`), webhook.Malformed},
		{"case 71: no object", simple(), signed(t, simple(), `[1]`), webhook.Malformed},
		{"case 71: no JSON", simple(), signed(t, simple(), `id=1`), webhook.Malformed},
		{"case 71: no body", simple(), signed(t, simple(), ``), webhook.Malformed},
		{"case 72: a long id", simple(), signed(t, simple(), `{"id":"`+strings.Repeat("x", 256)+`"}`), webhook.Malformed},
		{"case 72: NUL in the id", simple(), signed(t, simple(), `{"id":"a\u0000b"}`), webhook.Malformed},
		{"case 72: an empty id", simple(), signed(t, simple(), `{"id":""}`), webhook.Malformed},
		{"case 72: no id", simple(), signed(t, simple(), `{}`), webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, newVerifier(t, test.cfg), test.d, test.want) })
	}
}

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
			d := &webhook.Delivery{Header: newVerifier(t, timed()).Sign(target, []byte(body), time.Unix(n, 0)), Body: []byte(body), Time: now}
			refused(t, newVerifier(t, timed()), d, webhook.BadTime)
		})
	}
	for _, text := range []string{"1<<62", strconv.Itoa(1 << 62), strconv.FormatUint(math.MaxUint64, 10), "-1", "+1780000000", "1780000000.0", " 1780000000", "1e9", "", "１"} {
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

func unsignedID() hmachook.Config {
	return with(simple(), func(c *hmachook.Config) {
		c.IDPaths, c.IDHeader = nil, "X-Delivery"
		c.TopicHeader, c.AcceptedRisks = "X-Topic", []hmachook.Risk{hmachook.RiskUnsignedTopic}
	})
}

func TestCase54UnsignedID(t *testing.T) {
	cfg := unsignedID()
	event := func(id, topic, body string) consumer.Message {
		t.Helper()
		d := signed(t, cfg, body)
		d.Header.Set("X-Delivery", id)
		d.Header.Set("X-Topic", topic)
		events, err := newVerifier(t, cfg).Verify(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if len(events[0].Message.Aliases) != 1 {
			t.Fatalf("case 54: aliases %q, want one", events[0].Message.Aliases)
		}
		return events[0].Message
	}
	first := event("d1", "orders/paid", `not even JSON`)
	if first.ID != "d1" || first.Topic != "orders/paid" {
		t.Errorf("%+v", first)
	}
	if again := event("d2", "orders/paid", `not even JSON`); again.ID != "d2" || again.Aliases[0] != first.Aliases[0] || again.Tenant != first.Tenant {
		t.Errorf("case 54: a known body with a new id has the aliases %q, had %q", again.Aliases, first.Aliases)
	}
	if other := event("d3", "orders/paid", `other`); other.Aliases[0] == first.Aliases[0] {
		t.Error("another body has the same alias")
	}
	if other := event("d4", "orders/created", `not even JSON`); other.Aliases[0] == first.Aliases[0] {
		t.Error("E17: a body under another topic has the same alias, so that its event would be lost")
	}
	for name, edit := range map[string]func(http.Header){
		"case 47: no id":          func(h http.Header) { h.Del("X-Delivery") },
		"case 47: two ids":        func(h http.Header) { h.Add("X-Delivery", "d2") },
		"case 47: no topic":       func(h http.Header) { h.Del("X-Topic") },
		"case 72: a long id":      func(h http.Header) { h.Set("X-Delivery", strings.Repeat("x", 256)) },
		"case 72: NUL in an id":   func(h http.Header) { h.Set("X-Delivery", "a\x00") },
		"case 72: NUL in a topic": func(h http.Header) { h.Set("X-Topic", "a\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			d := signed(t, cfg, "x")
			d.Header.Set("X-Delivery", "d1")
			d.Header.Set("X-Topic", "t")
			edit(d.Header)
			refused(t, newVerifier(t, cfg), d, webhook.Malformed)
		})
	}
}

// Where parts of the signed text have no separator between them, bytes could be moved from one to the other.
func TestCase55Framing(t *testing.T) {
	url := with(simple(), func(c *hmachook.Config) { c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery", "{url}{body}" })
	adjacent := with(timed(), func(c *hmachook.Config) { c.IDPaths, c.IDHeader, c.Signed = nil, "X-Delivery", "{timestamp}{body}" })
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

func TestCase67Batch(t *testing.T) {
	batch := with(simple(), func(c *hmachook.Config) {
		c.ItemsPath, c.IDPaths, c.TopicPath, c.FingerprintPaths = "data.items", []string{"id"}, "type", []string{"n"}
	})
	body := `{"data":{"items":[{"id":"e1","type":"a","n":1}, {"id":"e2","type":"b", "n":2},{"id":"e1","type":"a","n":1}]}}`
	got, err := newVerifier(t, batch).Verify(t.Context(), signed(t, batch, body))
	if err != nil {
		t.Fatal(err)
	}
	var items []string
	for _, event := range got {
		items = append(items, event.Message.ID+" "+event.Message.Topic+" "+string(event.Message.Payload)+event.Drop)
	}
	want := []string{`e1 a {"id":"e1","type":"a","n":1}`, `e2 b {"id":"e2","type":"b", "n":2}`, `e1 a {"id":"e1","type":"a","n":1}`}
	if diff := cmp.Diff(want, items); diff != "" {
		t.Errorf("case 67: (-want +got)\n%s", diff)
	}
	if *got[0].Message.Fingerprint != *got[2].Message.Fingerprint || *got[0].Message.Fingerprint == *got[1].Message.Fingerprint {
		t.Error("case 67: fingerprints are not of the items")
	}
	whole := with(simple(), func(c *hmachook.Config) { c.ItemsPath = "." })
	t.Run("case 67: a body that is an array", func(t *testing.T) {
		got, err := newVerifier(t, whole).Verify(t.Context(), signed(t, whole, `[{"id":"e1"},{"id":2}]`))
		if err != nil || len(got) != 2 || got[0].Message.ID != "e1" || got[1].Message.ID != "2" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("case 67: no items", func(t *testing.T) {
		got, err := newVerifier(t, whole).Verify(t.Context(), signed(t, whole, `[]`))
		if err != nil || len(got) != 1 || got[0].Drop != "batch without items" || got[0].Message.ID == "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	for name, body := range map[string]string{
		"an item without id":     `[{"id":"e1"},{}]`,
		"an item of no object":   `[1]`,
		"no array":               `{"id":"e1"}`,
		"null":                   `null`,
		"more items than 10,000": `[` + strings.Repeat(`{"id":"e1"},`, 10_000) + `{"id":"e1"}]`,
	} {
		t.Run("case 67: "+name, func(t *testing.T) { refused(t, newVerifier(t, whole), signed(t, whole, body), webhook.Malformed) })
	}
}

func TestE18Fingerprint(t *testing.T) {
	cfg := with(simple(), func(c *hmachook.Config) { c.FingerprintPaths = []string{"data.amount", "data.currency"} })
	fingerprint := func(body string) dedup.Fingerprint {
		t.Helper()
		events, err := newVerifier(t, cfg).Verify(t.Context(), signed(t, cfg, body))
		if err != nil {
			t.Fatal(err)
		}
		return *events[0].Message.Fingerprint
	}
	first := fingerprint(`{"id":"e1","data":{"amount":1,"currency":null},"attempt":1}`)
	if first.IsZero() {
		t.Error("the fingerprint is zero, which matches all content")
	}
	for _, body := range []string{
		`{"id":"e1","attempt":2,"data":{"currency":null,"amount":1}}`, // what may differ between deliveries
		`{"id":"e1","data":{"amount":1}}`,
		"{\"id\":\"e1\",\n\"data\": {\"amount\": 1}}",
	} {
		if fingerprint(body) != first {
			t.Errorf("E18: %s has another fingerprint", body)
		}
	}
	for _, body := range []string{`{"id":"e1","data":{"amount":2}}`, `{"id":"e1","data":{"amount":null,"currency":1}}`, `{"id":"e1","data":{}}`} {
		if fingerprint(body) == first {
			t.Errorf("E18: %s has the fingerprint of another content", body)
		}
	}
}

func TestURLIsRequired(t *testing.T) {
	cfg := with(simple(), func(c *hmachook.Config) { c.Signed = "{url}{body}" })
	d := signed(t, cfg, `{"id":"e1"}`)
	d.URL = ""
	if _, err := newVerifier(t, cfg).Verify(t.Context(), d); err == nil || webhook.RefusalOf(err) != "" || !strings.Contains(err.Error(), "webhook.Config.PublicURL") {
		t.Errorf("E25: Verify = %v; want an error that is no refusal and names PublicURL", err)
	}
	d.URL = "https://evil.example/in?shop=1"
	refused(t, newVerifier(t, cfg), d, webhook.BadSignature)
}

// Whatever is accepted is what was signed.
func FuzzVerify(f *testing.F) {
	configs := []hmachook.Config{
		simple(), timed(), unsignedID(),
		with(simple(), func(c *hmachook.Config) { c.Signed, c.SignatureEncoding = "{url}{body}", hmachook.Base64 }),
		with(timed(), func(c *hmachook.Config) { c.Signed, c.ItemsPath = "{timestamp}{body}", "." }),
	}
	const body = `{"id":"e1","data":[{"id":"e2"}]}`
	bodies := []string{body, body, body, body, `[{"id":"e1"},{"id":"e2"}]`}
	verifiers := make([]*hmachook.Verifier, len(configs))
	for i, cfg := range configs {
		verifiers[i] = newVerifier(f, cfg)
	}
	f.Add(uint8(0), uint16(0), uint16(0), " ", "", "", "")
	f.Add(uint8(1), uint16(1), uint16(3), `"ID"`, "X-Signature", "ts=1780000000;h1=00", target)
	f.Add(uint8(2), uint16(0), uint16(999), "x", "X-Delivery", "d2", target)
	f.Add(uint8(3), uint16(0), uint16(1), "", "", "", target+"{")
	f.Add(uint8(4), uint16(0), uint16(0), "0", "X-Signature", "ts=178000000", "")
	f.Fuzz(func(t *testing.T, which uint8, at, cut uint16, patch, name, value, url string) {
		i := int(which) % len(configs)
		v, original := verifiers[i], bodies[i]
		d := &webhook.Delivery{Header: v.Sign(target, []byte(original), now), Body: []byte(original), URL: target, Time: now}
		d.Header.Set("X-Delivery", "d1")
		d.Header.Set("X-Topic", "t")
		want, err := v.Verify(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		from := min(int(at), len(original))
		to := min(from+int(cut), len(original))
		header := maps.Clone(d.Header)
		if name != "" {
			header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		changed := &webhook.Delivery{Header: header, Body: []byte(original[:from] + patch + original[to:]), URL: url, Time: now}
		got, err := v.Verify(t.Context(), changed)
		if err != nil {
			return
		}
		if configs[i].IDHeader != "" { // not signed
			if got[0].Message.Topic == "t" && !cmp.Equal(got[0].Message.Aliases, want[0].Message.Aliases) {
				t.Fatalf("accepted another body: %+v", got)
			}
			got[0].Message.ID, got[0].Message.Topic, got[0].Message.Aliases = want[0].Message.ID, want[0].Message.Topic, want[0].Message.Aliases
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("accepted changed content (-signed +accepted)\n%s", diff)
		}
	})
}
