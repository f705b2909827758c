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
	if first.ID != "d1:orders/paid" || first.Topic != "orders/paid" {
		t.Errorf("%+v", first)
	}
	if again := event("d2", "orders/paid", `not even JSON`); again.ID != "d2:orders/paid" ||
		again.Aliases[0] != first.Aliases[0] || again.Tenant != first.Tenant {
		t.Errorf("case 54: a known body with a new id has the aliases %q, had %q", again.Aliases, first.Aliases)
	}
	if other := event("d3", "orders/paid", `other`); other.Aliases[0] == first.Aliases[0] {
		t.Error("another body has the same alias")
	}
	if other := event("d4", "orders/sent", `not even JSON`); other.Aliases[0] == first.Aliases[0] {
		t.Error("E17: a body under another topic has the same alias, so that its event would be lost")
	}
	for name, edit := range map[string]func(http.Header){
		"case 47: no id":        func(h http.Header) { h.Del("X-Delivery") },
		"case 47: two ids":      func(h http.Header) { h.Add("X-Delivery", "d2") },
		"case 47: no topic":     func(h http.Header) { h.Del("X-Topic") },
		"case 72: a long id":    func(h http.Header) { h.Set("X-Delivery", strings.Repeat("x", 256)) },
		"case 72: NUL in an id": func(h http.Header) { h.Set("X-Delivery", "a\x00") },
		"an id that is an alias": func(h http.Header) {
			h.Set("X-Delivery", "body")
			h.Set("X-Topic",
				"sha256="+strings.Repeat("0", 64))
		},
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
	want := []string{
		`e1 a {"id":"e1","type":"a","n":1}`, `e2 b {"id":"e2","type":"b", "n":2}`,
		`e1 a {"id":"e1","type":"a","n":1}`,
	}
	if diff := cmp.Diff(want, items); diff != "" {
		t.Errorf("case 67: (-want +got)\n%s", diff)
	}
	if *got[0].Message.Fingerprint != *got[2].Message.Fingerprint ||
		*got[0].Message.Fingerprint == *got[1].Message.Fingerprint {
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
	for _, body := range []string{
		`{"id":"e1","data":{"amount":2}}`, `{"id":"e1","data":{"amount":null,"currency":1}}`,
		`{"id":"e1","data":{}}`,
	} {
		if fingerprint(body) == first {
			t.Errorf("E18: %s has the fingerprint of another content", body)
		}
	}
}

// TestScalarIDs: 1 and "1" are different values of a JSON document, and so are true and "true".
func TestScalarIDs(t *testing.T) {
	v, err := hmachook.New(hmachook.Config{
		Name: "probe", Secrets: []string{"a secret of the tests, 32 bytes.."}, SignatureHeader: "X-Sig",
		SignatureEncoding: hmachook.Hex, IDPaths: []string{"kind", "id"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, body := range []string{
		`{"kind":"a","id":1}`, `{"kind":"a","id":"1"}`, `{"kind":"a","id":true}`, `{"kind":"a","id":"true"}`,
		`{"kind":"a:1","id":"b"}`, `{"kind":"a","id":"1:b"}`,
		`{"kind":"a\\","id":":b"}`, `{"kind":"a","id":-0}`, `{"kind":"a","id":0}`, `{"kind":"a","id":" 1"}`,
		`{"kind":"a","id":"1 "}`,
	} {
		events, err := v.Verify(t.Context(), &webhook.Delivery{
			Header: v.Sign("", []byte(body), time.Now()),
			Body:   []byte(body), Time: time.Now(),
		})
		if err != nil {
			t.Logf("%s: %v", body, err)
			continue
		}
		id := events[0].Message.ID
		if other, twice := ids[id]; twice {
			t.Errorf("%s and %s have the same ID %q", other, body, id)
		}
		ids[id] = body
	}
}
