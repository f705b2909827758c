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

// FuzzFields: the signed text of an accepted message can be divided into fields in one way only, so that no bytes can
// be moved from one field to another under the same signature.
func FuzzFields(f *testing.F) {
	v, err := snshook.New(snshook.Config{TopicArns: []string{orders}, Transport: sharedSigner()})
	if err != nil {
		f.Fatal(err)
	}
	var template map[string]string
	if err := json.Unmarshal(sign(f, snshook.Message{Message: "hello", Type: "SubscriptionConfirmation"}),
		&template); err != nil {
		f.Fatal(err)
	}
	f.Add("Notification", "a\nMessageId\nb", template["MessageId"], "subject", template["Timestamp"])
	f.Add("Notification", "", template["MessageId"], "a\nTimestamp\n", "2026-05-04T03:02:01Z")
	f.Add("SubscriptionConfirmation", "a\nMessageId\nb", template["MessageId"], "x\nToken\ny", template["Timestamp"])
	f.Add("UnsubscribeConfirmation", "\xff", "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324\n", "", "9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, kind, text, id, further, timestamp string) {
		fields := maps.Clone(template)
		fields["Type"], fields["Message"], fields["MessageId"], fields["Timestamp"] = kind, text, id, timestamp
		fields["Subject"], fields["Token"] = further, further
		body, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		read, signed, err := v.Read(body)
		if err != nil {
			if webhook.RefusalOf(err) == "" {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		for name, value := range divide(string(signed)) {
			if read[name] != value {
				t.Errorf("%q: %s is %q, and in the signed text %q", body, name, read[name], value)
			}
		}
	})
}

// divide reads a signed text from its end: pairs of lines, up to the MessageId. What is before it is the Message.
func divide(signed string) map[string]string {
	lines := strings.Split(strings.TrimSuffix(signed, "\n"), "\n")
	fields := map[string]string{}
	for fields["MessageId"] == "" && len(lines) >= 2 {
		n := len(lines)
		fields[lines[n-2]] = lines[n-1]
		lines = lines[:n-2]
	}
	fields["Message"] = strings.TrimPrefix(strings.Join(lines, "\n"), "Message\n")
	return fields
}
