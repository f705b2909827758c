package stripehook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
)

// An event that cannot be read is parked with the name of each field that is missing or has another form.
func TestMalformedEventNamesItsFields(t *testing.T) {
	for _, tt := range []struct {
		name, raw    string
		blames, lets []string
	}{
		{"little", `{"id":"evt_1","object":"event"}`, []string{`"type"`, `"livemode"`, `"created"`}, []string{`"id"`}},
		{"nothing", `{}`, []string{`"object"`, `"id"`, `"type"`, `"livemode"`, `"created"`}, nil},
		{
			"no object", `{"id":"evt_1","type":"x","livemode":true,"created":1}`,
			[]string{`"object"`},
			[]string{`"id"`, `"type"`, `"livemode"`, `"created"`},
		},
		{
			"a thin event", `{"id":"evt_1","object":"v2.core.event","type":"x","created":1,"livemode":true}`,
			[]string{`"created"`},
			[]string{`"id"`, `"livemode"`},
		},
		{
			"an account", `{"id":7,"object":"event","type":"x","created":1,"livemode":true,"account":"a:b"}`,
			[]string{`"id"`, `"account"`},
			[]string{`"created"`},
		},
		{"null", `null`, []string{"not a JSON object"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				e := event(1, time.Hour)
				w.stripe.add(e)
				w.stripe.events[0].raw = json.RawMessage(tt.raw)
				w.once(t, w.backfill(t))
				letters, err := w.store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
				if err != nil || len(letters) != 1 {
					t.Fatalf("%d letters, %v", len(letters), err)
				}
				cause := letters[0].Error
				for _, field := range tt.blames {
					if !strings.Contains(cause, field) {
						t.Errorf("the letter does not name %s: %s", field, cause)
					}
				}
				for _, field := range tt.lets {
					if strings.Contains(cause, field) {
						t.Errorf("the letter blames %s: %s", field, cause)
					}
				}
			})
		})
	}
}
