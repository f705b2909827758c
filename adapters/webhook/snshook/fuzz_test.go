package snshook_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
	"github.com/txonce/txonce/dedup"
)

func FuzzVerify(f *testing.F) {
	v, err := snshook.New(snshook.Config{TopicArns: []string{orders}, Transport: sharedSigner()})
	if err != nil {
		f.Fatal(err)
	}
	deliver := func(t testing.TB, body []byte) ([]webhook.Event, error) {
		return v.Verify(t.Context(), &webhook.Delivery{Body: body, Time: published})
	}
	signed := sign(f, snshook.Message{Message: "a\nSubject\nb", Subject: "c"})
	want, err := v.Verify(f.Context(), &webhook.Delivery{Body: signed, Time: published})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint16(0), []byte(" "))
	f.Add(uint16(3), uint16(1), []byte{'"'})
	f.Add(uint16(len(signed)-1), uint16(1), []byte(`,"Subject":"x"}`))
	f.Add(uint16(0), uint16(65535), []byte(`{"Type":"Notification","Message":"\ud800"}`))
	f.Fuzz(func(t *testing.T, at, cut uint16, patch []byte) {
		from := min(int(at), len(signed))
		to := min(from+int(cut), len(signed))
		body := append(append(bytes.Clone(signed[:from]), patch...), signed[to:]...)
		got, err := deliver(t, body)
		if err != nil {
			return
		}
		if !reflect.DeepEqual(want, got) { // not cmp.Diff: its coverage is random
			t.Fatalf("accepted %q as %+v, and signed was %+v", body, got, want)
		}
	})
}

// FuzzFields signs what the fuzzer makes. What is accepted can be read in one way only: it is what the fields say.
func FuzzFields(f *testing.F) {
	v, err := snshook.New(snshook.Config{TopicArns: []string{orders}, Transport: sharedSigner()})
	if err != nil {
		f.Fatal(err)
	}
	var template map[string]string
	if err := json.Unmarshal(sign(f, snshook.Message{Message: "hello"}), &template); err != nil {
		f.Fatal(err)
	}
	f.Add("a\nMessageId\nb", template["MessageId"], "subject", template["Timestamp"])
	f.Add("", "x", "a\nTimestamp\n", "2026-05-04T03:02:01Z")
	f.Add("\xff", "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324\n", "", "9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, text, id, subject, timestamp string) {
		fields := maps.Clone(template)
		fields["Message"], fields["MessageId"], fields["Subject"], fields["Timestamp"] = text, id, subject, timestamp
		body, err := sharedSigner().SignFields(fields)
		if err != nil {
			t.Fatal(err)
		}
		events, err := v.Verify(t.Context(), &webhook.Delivery{Body: body, Time: published})
		if err != nil {
			if webhook.RefusalOf(err) == "" {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		m := events[0].Message
		if string(m.Payload) != text || m.ID != id || m.Headers["sns-subject"] != subject || m.Headers["sns-timestamp"] != timestamp {
			t.Errorf("%q became %+v", body, m)
		}
		if strings.ContainsAny(id+subject+timestamp, "\n") || m.Time.Sub(published) > dedup.MaxAhead {
			t.Errorf("accepted %q", body)
		}
	})
}
