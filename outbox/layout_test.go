package outbox_test

import (
	"maps"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
)

func TestOutboxLayouts(t *testing.T) {
	enqueued := time.Date(2026, 11, 21, 14, 0, 0, 120_000_000, time.FixedZone("", 3600))
	plain := map[string]string{
		"txonce-id": "m1", "txonce-sequence": "42",
		"txonce-enqueued-at": "2026-11-21T13:00:00.12Z",
	}
	with := func(more ...string) map[string]string {
		headers := maps.Clone(plain)
		for i := 0; i < len(more); i += 2 {
			headers[more[i]] = more[i+1]
		}
		return headers
	}
	for _, tt := range []struct {
		name   string
		layout outbox.HeaderFormat
		key    string
		own    map[string]string
		want   map[string]string
	}{
		{"plain", outbox.PlainHeaders, "k", nil, plain},
		{"plain with headers", outbox.PlainHeaders, "k", map[string]string{"a": "b"}, with("a", "b")},
		{
			"debezium", outbox.Debezium, "k",
			map[string]string{"eventType": "Charged"},
			with("eventType", "Charged", "id", "m1"),
		},
		{"debezium: the id is the message's", outbox.Debezium, "k", map[string]string{"id": "x"}, with("id", "m1")},
		{
			"cloudevents", outbox.CloudEvents("/billing"), "order 7",
			map[string]string{"content-type": "application/json"},
			with("ce_specversion", "1.0", "ce_id", "m1", "ce_source", "/billing", "ce_type", "charges",
				"ce_subject", "order 7", "ce_time", "2026-11-21T13:00:00.12Z", "content-type", "application/json"),
		},
		{
			"cloudevents: own attributes", outbox.CloudEvents("/billing"), "k",
			map[string]string{
				"ce_id": "x", "ce_specversion": "0.3", "ce_source": "/other", "ce_type": "Charged",
				"ce_subject": "s", "ce_time": "2026-01-01T00:00:00Z", "ce_traceparent": "t",
			},
			with("ce_id", "m1", "ce_specversion", "1.0", "ce_source", "/other", "ce_type", "Charged", "ce_subject", "s",
				"ce_time", "2026-01-01T00:00:00Z", "ce_traceparent", "t"),
		},
		{
			"cloudevents: a binary key is no subject", outbox.CloudEvents("/billing"), "\xff\x00", nil,
			with("ce_specversion", "1.0", "ce_id", "m1", "ce_source", "/billing", "ce_type", "charges", "ce_time",
				"2026-11-21T13:00:00.12Z"),
		},
		{
			"cloudevents: no key, no subject", outbox.CloudEvents("urn:x:y"), "", nil,
			with("ce_specversion", "1.0", "ce_id", "m1", "ce_source", "urn:x:y", "ce_type", "charges", "ce_time",
				"2026-11-21T13:00:00.12Z"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own := maps.Clone(tt.own)
			m := outbox.Stored{
				Message: outbox.Message{ID: "m1", Topic: "charges", OrderingKey: tt.key, Headers: own},
				Seq:     42, Enqueued: enqueued,
			}
			first, second := tt.layout(m), tt.layout(m)
			if !maps.Equal(first, tt.want) {
				t.Errorf("got  %q\nwant %q", first, tt.want)
			}
			if !maps.Equal(first, second) || !maps.Equal(own, tt.own) {
				t.Error("it is not the same the second time, or changed the message's own headers")
			}
		})
	}
	for _, source := range []string{"", "%zz", "http://[::1"} {
		t.Run("source "+source, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("accepted")
				}
			}()
			outbox.CloudEvents(source)
		})
	}
}
