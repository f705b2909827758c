package twiliohook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
)

func TestJSON(t *testing.T) {
	type item struct {
		ID   string    `json:"id"`
		Type string    `json:"type"`
		Time time.Time `json:"time"`
	}
	v := newVerifier(t, twiliohook.Config{IdentifyJSON: func(body []byte) ([]twiliohook.Identity, error) {
		var raw []json.RawMessage
		if err := json.Unmarshal(body, &raw); err != nil {
			return nil, err
		}
		identities := make([]twiliohook.Identity, len(raw))
		for i := range raw {
			var it item
			if err := json.Unmarshal(raw[i], &it); err != nil {
				return nil, err
			}
			identities[i] = twiliohook.Identity{ID: it.ID, Topic: it.Type, Time: it.Time, Payload: raw[i]}
		}
		return identities, nil
	}})
	body := `[{"id":"EZ1","type":"sent","time":"2026-05-04T03:02:01Z"}, {"id":"EZ2","type":"failed","time":"2026-05-04T03:02:02Z"}]`
	signed, signature := twiliohook.SignJSON(token, target, []byte(body))
	t.Run("case 67: an event for each item", func(t *testing.T) {
		got, err := v.Verify(t.Context(), delivery(signed, signature, body))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Message.ID != "EZ1" || got[1].Message.ID != "EZ2" ||
			got[1].Message.Topic != "failed" ||
			string(got[1].Message.Payload) != body[strings.LastIndex(body, "{"):len(body)-1] ||
			*got[0].Message.Fingerprint == *got[1].Message.Fingerprint ||
			!got[0].Message.Time.Equal(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)) {
			t.Errorf("%+v", got)
		}
	})
	reSign := func(body string) *webhook.Delivery {
		signed, signature := twiliohook.SignJSON(token, target, []byte(body))
		return delivery(signed, signature, body)
	}
	plain := "https://hooks.example.com/twilio"
	twice := signed + "&bodySHA256=" + strings.Repeat("0", 64)
	form := status()
	for _, test := range []struct {
		name string
		d    *webhook.Delivery
		want webhook.Refusal
	}{
		{"E25: the body is not the one that was signed", delivery(signed, signature, body+" "), webhook.BadSignature},
		{"E25: no bodySHA256", delivery(plain, twiliohook.Sign(token, plain, nil), body), webhook.Unsigned},
		{"E25: two bodySHA256", delivery(twice, twiliohook.Sign(token, twice, nil), body), webhook.Unsigned},
		{
			"E25: another bodySHA256", delivery(strings.Replace(signed, "SHA256=", "SHA256=0", 1), signature, body),
			webhook.BadSignature,
		},
		{"a form", delivery(target, twiliohook.Sign(token, target, form), form.Encode()), webhook.BadSignature},
		{"no items", reSign(`[]`), webhook.Malformed},
		{"no array", reSign(`{}`), webhook.Malformed},
		{"case 71: deep nesting", reSign(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), webhook.Malformed},
		{"case 72: an empty id", reSign(`[{}]`), webhook.Malformed},
		{"case 72: NUL in an id", reSign(`[{"id":"a\u0000"}]`), webhook.Malformed},
		{"case 72: a long id", reSign(`[{"id":"` + strings.Repeat("a", 256) + `"}]`), webhook.Malformed},
		{"case 71: a surrogate alone", reSign(`[{"id":"\ud800"}]`), webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, err := v.Verify(t.Context(), test.d)
			if got := webhook.RefusalOf(err); got != test.want || events != nil {
				t.Errorf("Verify = %v, %v; want a refusal %q", events, err, test.want)
			}
		})
	}
}
