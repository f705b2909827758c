package slackhook_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
)

func signed(body string) (header map[string][]string, _ string) {
	return headers(v0(secret, unix(now), body), unix(now)), body
}

func TestURLVerification(t *testing.T) {
	v := newVerifier(t, secret)
	t.Run("case 74: signed", func(t *testing.T) {
		h, body := signed(challenge)
		event, refusal := verify(t, v, h, body)
		if refusal != "" || event.Drop == "" || event.Reply == nil || event.Reply.Status != 0 ||
			event.Reply.ContentType != "text/plain; charset=utf-8" ||
			string(event.Reply.Body) != "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" {
			t.Errorf("refused as %q, event %+v, reply %+v", refusal, event, event.Reply)
		}
	})
	ts, old := unix(now), unix(now.Add(-3600e9))
	for _, test := range []struct {
		name string
		h    map[string][]string
		body string
		want webhook.Refusal
	}{
		{"case 74: not signed", nil, challenge, webhook.Unsigned},
		{"case 74: signed by a stranger", headers(v0(stranger, ts, challenge), ts), challenge, webhook.BadSignature},
		{"case 74: an old one", headers(v0(secret, old, challenge), old), challenge, webhook.BadTime},
		{"case 74: without a challenge", nil, `{"type":"url_verification"}`, webhook.Malformed},
		{
			"case 74: two challenges", nil, `{"type":"url_verification","challenge":"a","Challenge":"b"}`,
			webhook.Malformed,
		},
		{
			"case 74: a challenge with a newline", nil, `{"type":"url_verification","challenge":"a\nb"}`,
			webhook.Malformed,
		},
		{
			"case 74: a long challenge", nil, `{"type":"url_verification","challenge":"` + strings.Repeat("a", 300) + `"}`,
			webhook.Malformed,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.h == nil && test.want != webhook.Unsigned {
				test.h, _ = signed(test.body)
			}
			if _, refusal := verify(t, v, test.h, test.body); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestBody(t *testing.T) {
	v := newVerifier(t, secret)
	edit := func(old, new string) string {
		if strings.Count(body, old) != 1 {
			t.Fatalf("%q is not in the body once", old)
		}
		return strings.Replace(body, old, new, 1)
	}
	for _, test := range []struct {
		name, body string
		want       webhook.Refusal
		dropped    bool
	}{
		{"case 70: an unknown type of event", edit(`"app_mention"`, `"brand_new"`), "", false},
		{"case 70: an unknown outer type, with an ID", edit(`"event_callback"`, `"brand_new"`), "", false},
		{"without a team, as an event of an organization", edit(`"team_id":"T1","api_app_id"`, `"team_id":null,"api_app_id"`), "", false},
		{"app_rate_limited", `{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1772359200,"api_app_id":"A1"}`, "", true},
		{
			"case 71: two IDs", edit(`"event_id":"Ev08MFMKH6"`, `"event_id":"Ev08MFMKH6","event_id":"Ev2"`),
			webhook.Malformed, false,
		},
		{
			"case 71: two IDs, ignoring case",
			edit(`"event_id":"Ev08MFMKH6"`, `"event_id":"Ev08MFMKH6","Event_ID":"Ev2"`), webhook.Malformed, false,
		},
		{
			"case 71: two apps", edit(`"api_app_id":"A1"`, `"api_app_id":"A1","api_app_id":"A2"`),
			webhook.Malformed, false,
		},
		{
			"case 71: two inner types", edit(`"type":"app_mention"`, `"type":"app_mention","type":"message"`),
			webhook.Malformed, false,
		},
		{"case 71: a numeric ID", edit(`"Ev08MFMKH6"`, `9007199254740993`), webhook.Malformed, false},
		{"case 71: an ID that is not UTF-8", edit(`Ev08MFMKH6`, "Ev\xff"), webhook.Malformed, false},
		{
			"case 71: deep nesting", edit(`"<@U0> hi"`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000)),
			webhook.Malformed, false,
		},
		{"case 72: a long ID", edit(`Ev08MFMKH6`, strings.Repeat("E", 256)), webhook.Malformed, false},
		{"case 72: an ID with NUL", edit(`Ev08MFMKH6`, `Ev\u0000`), webhook.Malformed, false},
		{"case 72: a long app", edit(`"A1"`, `"`+strings.Repeat("A", 129)+`"`), webhook.Malformed, false},
		{"no ID", edit(`"event_id":"Ev08MFMKH6",`, ""), webhook.Malformed, false},
		{"no app", edit(`"api_app_id":"A1",`, ""), webhook.Malformed, false},
		{"no time", edit(`"event_time":1772359198,`, ""), webhook.Malformed, false},
		{"a time of another form", edit(`1772359198,`, "1.772359198e9,"), webhook.Malformed, false},
		{
			"no event", `{"type":"event_callback","event_id":"Ev1","api_app_id":"A1","event_time":1}`,
			webhook.Malformed, false,
		},
		{"no type", `{"event_id":"Ev1"}`, webhook.Malformed, false},
		{"an array", `[]`, webhook.Malformed, false},
		{"empty", ``, webhook.Malformed, false},
		{
			"a slash command", url.Values{"command": {"/order"}, "trigger_id": {"1.2.a"}, "team_id": {"T1"}}.Encode(),
			webhook.Malformed, false,
		},
		{
			"a button", url.Values{"payload": {`{"type":"block_actions","trigger_id":"1.2.a"}`}}.Encode(),
			webhook.Malformed, false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, body := signed(test.body)
			event, refusal := verify(t, v, h, body)
			if refusal != test.want || (event.Drop != "") != test.dropped {
				t.Errorf("refused as %q, want %q; event %+v", refusal, test.want, event)
			}
			if refusal == "" && !test.dropped && (event.Message.ID != "Ev08MFMKH6" ||
				event.Message.Tenant != "slack/A1") {
				t.Errorf("event %+v", event)
			}
		})
	}
}

func TestSlashCommandIsExplained(t *testing.T) {
	h, body := signed("command=%2Forder&trigger_id=1.2.a")
	_, err := newVerifier(t, secret).Verify(t.Context(), &webhook.Delivery{Header: h, Body: []byte(body), Time: now})
	if err == nil || !strings.Contains(err.Error(), "slash commands") || !strings.Contains(err.Error(),
		"handler of their own") {
		t.Errorf("the error %v does not say what to do", err)
	}
}
