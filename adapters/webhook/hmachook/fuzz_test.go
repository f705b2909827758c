package hmachook_test

import (
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
	"github.com/txonce/txonce/dedup"
)

// Whatever is accepted is what was signed.
func FuzzVerify(f *testing.F) {
	configs := []hmachook.Config{
		simple(), timed(), unsignedID(),
		with(simple(), func(c *hmachook.Config) { c.Signed, c.SignatureEncoding = "{url}{body}", hmachook.Base64 }),
		with(timed(), func(c *hmachook.Config) { c.Signed, c.ItemsPath = "{timestamp}{body}", "." }),
		withID("{header:X-Delivery}{timestamp}{body}"),
		withID("{url}.{header:X-Delivery}.{body}.{timestamp}"),
	}
	const body = `{"id":"e1","data":[{"id":"e2"}]}`
	bodies := []string{body, body, body, body, `[{"id":"e1"},{"id":"e2"}]`, body, body}
	verifiers := make([]*hmachook.Verifier, len(configs))
	for i, cfg := range configs {
		verifiers[i] = newVerifier(f, cfg)
	}
	f.Add(uint8(0), uint16(0), uint16(0), " ", "", "", "")
	f.Add(uint8(1), uint16(1), uint16(3), `"ID"`, "X-Signature", "ts=1780000000;h1=00", target)
	f.Add(uint8(2), uint16(0), uint16(999), "x", "X-Delivery", "d2", target)
	f.Add(uint8(3), uint16(0), uint16(1), "", "", "", target+"{")
	f.Add(uint8(4), uint16(0), uint16(0), "0", "X-Signature", "ts=178000000", "")
	f.Add(uint8(5), uint16(0), uint16(0), "0", "X-Delivery", "d12026-05-28T20:26:40Z", "")
	f.Add(uint8(6), uint16(0), uint16(0), "", "X-Delivery", "x.d1", target)
	f.Fuzz(func(t *testing.T, which uint8, at, cut uint16, patch, name, value, url string) {
		i := int(which) % len(configs)
		v, original := verifiers[i], bodies[i]
		d := &webhook.Delivery{
			Header: http.Header{"X-Delivery": {"d1"}}, Body: []byte(original), URL: target,
			Time: now,
		}
		if err := v.SignTo(d.Header, nil, target, []byte(original), now); err != nil {
			t.Fatal(err)
		}
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
		changed := &webhook.Delivery{
			Header: header, Body: []byte(original[:from] + patch + original[to:]), URL: url,
			Time: now,
		}
		got, err := v.Verify(t.Context(), changed)
		if err != nil {
			return
		}
		if configs[i].IDHeader != "" && !strings.Contains(configs[i].Signed, "{header:") { // not signed
			if got[0].Message.Topic == "t" && !reflect.DeepEqual(got[0].Message.Aliases, want[0].Message.Aliases) {
				t.Fatalf("accepted another body: %+v", got)
			}
			got[0].Message.ID, got[0].Message.Topic, got[0].Message.Aliases = want[0].Message.ID, want[0].Message.Topic,
				want[0].Message.Aliases
		}
		if !reflect.DeepEqual(want, got) { // not cmp.Diff: its coverage is random
			t.Fatalf("accepted changed content: signed %+v, accepted %+v", want, got)
		}
	})
}

// FuzzBody signs what the fuzzer makes, so that it is read. What is accepted can be claimed.
func FuzzBody(f *testing.F) {
	cfg := with(simple(), func(c *hmachook.Config) {
		c.IDPaths, c.TopicPath, c.ScopePath, c.CreatedPath = []string{"id", "n"}, "type", "a.scope", "at"
		c.FingerprintPaths = []string{"a", "n"}
	})
	batch := with(cfg, func(c *hmachook.Config) { c.ItemsPath = "items" })
	verifiers := []*hmachook.Verifier{newVerifier(f, cfg), newVerifier(f, batch)}
	const item = `{"id":"e1","n":1,"type":"t","a":{"scope":"s"},"at":"2026-05-04T03:02:01Z"}`
	f.Add(item)
	f.Add(`{"items":[` + item + `,` + item + `]}`)
	f.Add(`{"items":[]}`)
	f.Add(`{"id":1,"ID":2}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, v := range verifiers {
			events, err := v.Verify(t.Context(), &webhook.Delivery{
				Header: v.Sign(target, []byte(body), now),
				Body:   []byte(body), Time: now,
			})
			if err != nil {
				if webhook.RefusalOf(err) != webhook.Malformed || events != nil {
					t.Errorf("Verify = %+v, %v", events, err)
				}
				continue
			}
			for _, event := range events {
				if err := (dedup.Key{Consumer: "c", Tenant: event.Message.Tenant, ID: event.Message.ID}).Validate(); err != nil || event.Message.Topic == "" {
					t.Errorf("accepted %+v: %v", event, err)
				}
			}
		}
	})
}
