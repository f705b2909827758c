package stripehook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

func TestParse(t *testing.T) {
	created := time.Date(2025, 10, 4, 15, 13, 32, 0, time.UTC)
	for _, tt := range []struct {
		name, payload string
		want          stripehook.Event
	}{
		{
			"a snapshot event",
			`{"id": "evt_1", "object": "event", "api_version": "2026-10-01", "created": 1759590812, "livemode": true, "type": "invoice.paid", "pending_webhooks": 2,
			"account": "acct_1", "context": "acct_0/acct_1", "request": {"id": "req_1"}, "data": {"object": {"id": "in_1", "object": "invoice"}, "previous_attributes": {"id": "x"}}}`,
			stripehook.Event{
				ID: "evt_1", Type: "invoice.paid", Created: created, Livemode: true, Account: "acct_1",
				Context: "acct_0/acct_1", APIVersion: "2026-10-01", Object: "in_1",
			},
		},
		{
			"a snapshot event with little in it",
			`{"type":"balance.available","object":"event","livemode":false,"id":"evt_2","created":1759590812,"account":null,"context":null,"api_version":null,"data":{"object":{"object":"balance"}}}`,
			stripehook.Event{ID: "evt_2", Type: "balance.available", Created: created},
		},
		{
			"an object with an ID that its owner chose",
			`{"id":"evt_3","object":"event","created":1759590812,"livemode":true,"type":"coupon.created","data":{"object":{"id":"20 % für\u0000alle","metadata":{"ID":1,"id":2}}}}`,
			stripehook.Event{
				ID: "evt_3", Type: "coupon.created", Created: created, Livemode: true,
				Object: "20 % für\x00alle",
			},
		},
		{
			"an object without a readable ID",
			`{"id":"evt_4","object":"event","created":1759590812,"livemode":true,"type":"x","data":{"object":{"id":17}}}`,
			stripehook.Event{ID: "evt_4", Type: "x", Created: created, Livemode: true},
		},
		{
			"no data", `{"id":"evt_5","object":"event","created":1759590812,"livemode":true,"type":"x"}`,
			stripehook.Event{ID: "evt_5", Type: "x", Created: created, Livemode: true},
		},
		{
			"a thin event",
			`{"id":"evt_6","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered","livemode":false,"created":"2025-10-04T15:13:32.232083866Z","context":null,
			"related_object":{"id":"mtr_1","type":"billing.meter","url":"/v1/billing/meters/mtr_1"},"reason":{"type":"request"}}`,
			stripehook.Event{
				ID: "evt_6", Thin: true, Type: "v1.billing.meter.error_report_triggered",
				Created: created.Add(232083866), Object: "mtr_1", ObjectURL: "/v1/billing/meters/mtr_1",
			},
		},
		{
			"a thin event with its snapshot event, in another time zone",
			`{"id":"evt_7","object":"v2.core.event","type":"v1.invoice.paid","livemode":true,"created":"2025-10-04T17:13:32+02:00","context":"acct_1","snapshot_event":"evt_1","related_object":null}`,
			stripehook.Event{
				ID: "evt_7", Thin: true, Type: "v1.invoice.paid", Created: created, Livemode: true,
				Context: "acct_1", Snapshot: "evt_1",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := stripehook.Parse([]byte(tt.payload))
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestSignedContentThatCannotBeRead(t *testing.T) {
	const rest = `,"object":"event","created":1759590812,"livemode":true,"type":"x"}`
	const thin = `{"id":"evt_1","object":"v2.core.event","livemode":true,"type":"x"`
	created := func(c string) string {
		return `{"id":"evt_1","object":"event","livemode":true,"type":"x","created":` + c + `}`
	}
	v := newVerifier(t, stripehook.Config{})
	for name, body := range map[string]string{
		"empty":                                  ``,
		"an array":                               `[]`,
		"null":                                   `null`,
		"cut":                                    `{"id":"evt_1"` + rest[:len(rest)-1],
		"two objects":                            `{"id":"evt_1"` + rest + `{}`,
		"R6: another object":                     `{"id":"in_1","object":"invoice","created":1759590812,"livemode":true,"type":"x"}`,
		"R6: no object":                          `{"id":"evt_1","created":1759590812,"livemode":true,"type":"x"}`,
		"case 71: id twice":                      `{"id":"evt_1","id":"evt_2"` + rest,
		"case 71: id twice, the same":            `{"id":"evt_1","id":"evt_1"` + rest,
		"case 71: id twice, one escaped":         `{"id":"evt_1","\u0069d":"evt_2"` + rest,
		"case 71: id and ID":                     `{"id":"evt_1","ID":"evt_2"` + rest,
		"case 71: ID alone":                      `{"ID":"evt_1"` + rest,
		"case 71: livemode in other letters":     `{"id":"evt_1","liveMode":false` + rest,
		"case 71: livemode, with another s":      `{"id":"evt_1","\u017fnapshot_event":"evt_2"` + rest,
		"case 71: id is a number":                `{"id":9007199254740993` + rest,
		"case 71: id is null":                    `{"id":null` + rest,
		"case 71: id is missing":                 `{"x":1` + rest,
		"case 71: id with invalid UTF-8":         "{\"id\":\"evt_\xff\"" + rest,
		"case 71: id with half a surrogate pair": `{"id":"evt_\ud800"` + rest,
		"case 71: nested deep": `{"id":"evt_1","data":` + strings.Repeat("[",
			10_000) + strings.Repeat("]", 10_000) + rest,
		"case 71: nested deep in objects": `{"id":"evt_1","data":` + strings.Repeat(`{"a":`, 300) + "1" +
			strings.Repeat("}", 300) + rest,
		"case 72: an empty id":                    `{"id":""` + rest,
		"case 72: a long id":                      `{"id":"` + strings.Repeat("x", 256) + `"` + rest,
		"case 72: id with NUL":                    `{"id":"evt_1\u0000"` + rest,
		"case 72: id with a space":                `{"id":"evt_1 "` + rest,
		"case 72: id with a line break":           `{"id":"evt_1\n"` + rest,
		"case 72: a long type":                    `{"id":"evt_1","object":"event","created":1759590812,"livemode":true,"type":"` + strings.Repeat("x", 256) + `"}`,
		"case 72: a long account":                 `{"account":"` + strings.Repeat("x", 121) + `","id":"evt_1"` + rest,
		"case 72: an account with a separator":    `{"account":"acct_1:acct_2","id":"evt_1"` + rest,
		"case 72: an account that is a number":    `{"account":1,"id":"evt_1"` + rest,
		"case 57: created is missing":             `{"id":"evt_1","object":"event","livemode":true,"type":"x"}`,
		"case 57: created is 0":                   created(`0`),
		"case 57: created is negative":            created(`-1759590812`),
		"case 57: created is a string":            created(`"1759590812"`),
		"case 57: created is 1e9":                 created(`1e9`),
		"case 57: created is 1e30":                created(`1e30`),
		"case 57: created is a fraction":          created(`1759590812.0`),
		"case 57: created is null":                created(`null`),
		"case 57: created is too far":             created(`221845392001`),
		"case 57: created overflows":              created(`99999999999999999999`),
		"case 57: created of a thin event is int": thin + `,"created":1759590812}`,
		"case 57: created of a thin event is far": thin + `,"created":"9999-10-04T15:13:32Z"}`,
		"case 57: created of a thin event is old": thin + `,"created":"0001-01-01T00:00:00Z"}`,
		"case 57: created of a thin event":        thin + `,"created":"yesterday"}`,
		"an empty snapshot_event":                 thin + `,"created":"2025-10-04T15:13:32Z","snapshot_event":""}`,
		"a snapshot_event that is no string": thin +
			`,"created":"2025-10-04T15:13:32Z","snapshot_event":{"id":"evt_1"}}`,
		"livemode is a string": `{"id":"evt_1","object":"event","livemode":"true","type":"x","created":1759590812}`,
		"livemode is missing":  `{"id":"evt_1","object":"event","type":"x","created":1759590812}`,
		"no type":              `{"id":"evt_1","object":"event","livemode":true,"created":1759590812}`,
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, v, signed([]byte(body), liveSecret), webhook.Malformed)
		})
	}
	t.Run("case 72: 255 bytes are not too long", func(t *testing.T) {
		id := strings.Repeat("x", 255)
		if got := accepted(t, v, signed([]byte(`{"id":"`+id+`"`+rest), liveSecret)).Message.ID; got != id {
			t.Errorf("the ID has %d bytes", len(got))
		}
	})
}

// What Body makes is what Parse reads.
func TestBodyOfAnEvent(t *testing.T) {
	thin := stripehook.Event{
		ID: "evt_2", Thin: true, Type: "v1.invoice.paid", Created: now.Add(123456789), Account: "acct_1",
		Context: "acct_0/acct_1", Object: "in_1", ObjectURL: "/v1/invoices/in_1", Snapshot: "evt_1",
	}
	for _, want := range []stripehook.Event{paid(), thin} {
		got, err := stripehook.Parse(want.Body(nil))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	var payload struct {
		Data struct{ Object struct{ Total int } }
	}
	if err := json.Unmarshal(paid().Body(map[string]int{"total": 5}), &payload); err != nil ||
		payload.Data.Object.Total != 5 {
		t.Errorf("error %v, %+v", err, payload)
	}
	if got, err := stripehook.Parse(stripehook.Event{ID: "evt_1", Type: "x"}.Body(nil)); err != nil ||
		time.Since(got.Created).Abs() > time.Minute {
		t.Errorf("error %v, created %v", err, got.Created)
	}
}
