package slackhook_test

import (
	"encoding/json"
	"strconv"
	"testing"
)

// FuzzVerify begins with requests that are right. Of what it makes of them, only requests whose signature the test
// itself makes for the same bytes may be accepted.
func FuzzVerify(f *testing.F) {
	ts := unix(now)
	for _, body := range []string{
		body, challenge, `{"type":"app_rate_limited"}`, "command=%2Fa",
		`{"type":"a","Type":"b"}`, "",
	} {
		f.Add(v0(secret, ts, body), ts, body)
	}
	f.Add(v0(secret, "99999999999", body), "99999999999", body)
	f.Add(v0(stranger, ts, body), ts, body)
	v := newVerifier(f, secret)
	f.Fuzz(func(t *testing.T, signature, ts, body string) {
		_, refusal := verify(t, v, headers(signature, ts), body)
		if refusal != "" {
			return
		}
		if signature != v0(secret, ts, body) {
			t.Errorf("accepted without a signature: %q at %q for %q", signature, ts, body)
		}
		seconds, err := strconv.ParseInt(ts, 10, 64)
		if off := seconds - now.Unix(); err != nil || off < -300 || off > 300 {
			t.Errorf("accepted with the time %q", ts)
		}
	})
}

// FuzzBody signs what the fuzzer makes, so that the body is read.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		body, challenge, `{"type":"app_rate_limited"}`, "command=%2Fa",
		`{"type":"a","Type":"b"}`,
	} {
		f.Add(body)
	}
	v := newVerifier(f, secret)
	f.Fuzz(func(t *testing.T, body string) {
		h, _ := signed(body)
		event, refusal := verify(t, v, h, body)
		if refusal != "" || event.Drop != "" {
			return
		}
		var handler struct { // what a handler reads must be what was claimed
			App   string `json:"api_app_id"`
			ID    string `json:"event_id"`
			Event struct {
				Type string `json:"type"`
			} `json:"event"`
		}
		if err := json.Unmarshal([]byte(body), &handler); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if msg := event.Message; msg.ID != handler.ID || msg.Tenant != "slack/"+handler.App ||
			msg.Topic != handler.Event.Type {
			t.Errorf("%q became %+v, and a handler reads %+v", body, msg, handler)
		}
	})
}
