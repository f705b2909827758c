package stripehook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/dedup"
)

// Exactly one pair of a time and a body was ever signed with the secret. Nothing else may be accepted.
func FuzzVerify(f *testing.F) {
	body := paid().Body(nil)
	header := stripehook.Sign(body, now, liveSecret)
	stamp, signature, _ := strings.Cut(header, ",v1=")
	for _, h := range []string{header, header + ",v1=00", stamp + ",v0=" + signature, stamp + ",v0=x,v1=zz,v1=" +
		signature, "t=1," + header, "t=,v1=", ",=,=="} {
		f.Add(h, body)
	}
	f.Add(header, append(bytes.Clone(body), '\n'))
	f.Add(strings.ToUpper(header), []byte("{}"))
	v := newVerifier(f, stripehook.Config{})
	f.Fuzz(func(t *testing.T, h string, b []byte) {
		events, err := v.Verify(t.Context(), delivery(b, h))
		if err != nil {
			if webhook.RefusalOf(err) == "" || len(events) != 0 {
				t.Fatalf("%d events, error %v: want a refusal", len(events), err)
			}
			return
		}
		if !bytes.Equal(b, body) || !strings.Contains(h, stamp) || !strings.Contains(strings.ToLower(h),
			"v1="+signature) {
			t.Fatalf("accepted: %q with %q", b, h)
		}
	})
}

// Signed bytes of any kind are refused as malformed, or give one event whose key every store accepts.
func FuzzSignedBody(f *testing.F) {
	for _, b := range []string{
		string(paid().Body(nil)), string(thinPaid().Body(nil)), `{"id":"a","id":"b"}`, `{"ID":"a"}`,
		"{\"id\":\"\xff\"}", `[[[[`, `{"created":1e30}`, `{"created":"2025-10-04T15:13:32.232083866Z"}`,
	} {
		f.Add([]byte(b))
	}
	v := newVerifier(f, stripehook.Config{ObjectAlias: true})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := signed(b, liveSecret)
		events, err := v.Verify(t.Context(), d)
		if err != nil {
			if why := webhook.RefusalOf(err); why != webhook.Malformed && why != webhook.WrongApp || len(events) != 0 {
				t.Fatalf("%d events, error %v: want a refusal", len(events), err)
			}
			return
		}
		msg := events[0].Message
		rec := dedup.Record{Key: dedup.Key{Consumer: "c", Tenant: msg.Tenant, ID: msg.ID}, Time: msg.Time}
		if err := rec.Validate(); err != nil || len(events) != 1 || msg.Time.IsZero() {
			t.Fatalf("%d events, %+v: %v", len(events), msg, err)
		}
		// encoding/json must find the ID of the key in the payload.
		var seen struct {
			ID       string          `json:"id"`
			Object   string          `json:"object"`
			Snapshot json.RawMessage `json:"snapshot_event"`
		}
		if err := json.Unmarshal(b, &seen); err != nil {
			t.Fatalf("accepted, but encoding/json says %v", err)
		}
		if seen.Object == "v2.core.event" && seen.Snapshot != nil && string(seen.Snapshot) != "null" {
			if err := json.Unmarshal(seen.Snapshot, &seen.ID); err != nil {
				t.Fatal(err)
			}
		}
		if seen.ID != msg.ID {
			t.Fatalf("the key has the ID %q, and encoding/json reads %q", msg.ID, seen.ID)
		}
	})
}

// answers is Stripe's API, which answers with each element once and then with the last one.
type answers [][]byte

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)),
		Request: r,
	}, nil
}

// Any bytes in place of a list: no panic, no endless pass, and nothing of another mode or time runs.
func FuzzListEvents(f *testing.F) {
	empty := []byte(`{"object":"list","has_more":false,"data":[]}`)
	list := func(more string, events ...string) []byte {
		return []byte(`{"object":"list","has_more":` + more + `,"data":[` + strings.Join(events, ",") + `]}`)
	}
	live := `{"id":"evt_1","object":"event","created":946600000,"livemode":true,"type":"x"}`
	f.Add(empty)
	f.Add(list("true", live))
	f.Add(list("false", live, strings.Replace(live, "true", "false", 1)))
	f.Add(list("false", live, live, strings.Replace(live, "946600000", "1", 1), `{"id":7}`, "null", "[]"))
	f.Add(list("true", `{"id":null}`))
	f.Add([]byte(`{"object":"list","has_more":null,"data":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		bubble(t, func(t *testing.T, w *world) {
			b := w.backfill(t, func(_ *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
				client.HTTP = &http.Client{Transport: &answers{body, empty}}
			})
			_ = b.Once(t.Context()) // an error is right for most bytes
			for _, msg := range w.took() {
				if msg.Tenant != "stripe/live" && !strings.HasPrefix(msg.Tenant, "stripe/live/") ||
					msg.Time.Before(w.since) {
					t.Errorf("it ran %+v", msg)
				}
			}
		})
	})
}
