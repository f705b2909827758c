package standardhook_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/standardhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

// FuzzVerify begins with deliveries that are right. Of what it makes of them, only deliveries whose signature the test
// itself makes for the same bytes may be accepted.
func FuzzVerify(f *testing.F) {
	ts := unix(now)
	f.Add(id, ts, v1(secret, id, ts, body), body, false)
	f.Add(id, ts, v1a(private, id, ts, body), body, true)
	f.Add(id, ts, "v0,x v2,y "+v1(stranger, id, ts, "")+" "+v1(secret, id, ts, ""), "", false)
	f.Add("msg.1", ts, v1(secret, "msg.1", ts, body), body, false)
	f.Add(id, "99999999999", v1(secret, id, "99999999999", body), body, false)
	f.Add(id, ts, v1(secret, id, ts, `{"type":"a","Type":"b"}`), `{"type":"a","Type":"b"}`, true)
	v := newVerifier(f, standardhook.Config{Secrets: []string{secret}, PublicKeys: []string{publicKey}})
	f.Fuzz(func(t *testing.T, id, ts, signature, body string, svix bool) {
		prefix := "webhook"
		if svix {
			prefix = "svix"
		}
		events, refusal := verifiers.Verify(t, v, headers(prefix, id, ts, signature), body, now)
		if refusal != "" {
			return
		}
		signatures := strings.Split(signature, " ")
		if !slices.Contains(signatures, v1(secret, id, ts, body)) &&
			!slices.Contains(signatures, v1a(private, id, ts, body)) {
			t.Errorf("accepted without a signature: id %q, time %q, signature %q, body %q", id, ts, signature, body)
		}
		seconds, err := strconv.ParseInt(ts, 10, 64)
		if off := seconds - now.Unix(); err != nil || off < -300 || off > 300 {
			t.Errorf("accepted with the time %q", ts)
		}
		msg := events[0].Message
		if strings.Contains(id, ".") || len(events) != 1 || msg.ID != id || string(msg.Payload) != body {
			t.Errorf("id %q and body %q became %+v", id, body, events)
		}
	})
}

// FuzzBody signs what the fuzzer makes, so that the body is read. What is read must be what a handler reads.
func FuzzBody(f *testing.F) {
	seeds := []string{
		body, `{"type":5}`, `{"type":"a","Type":"b"}`, `{"timestamp":"2026-03-01T10:00:00+01:00"}`, "a=b",
		"[]", "",
	}
	for _, body := range seeds {
		f.Add(body)
	}
	untimed := newVerifier(f, standardhook.Config{})
	timed := newVerifier(f, standardhook.Config{TimeField: "timestamp"})
	f.Fuzz(func(t *testing.T, body string) {
		h := headers("webhook", id, unix(now), v1(secret, id, unix(now), body))
		for _, v := range []*standardhook.Verifier{untimed, timed} {
			events, refusal := verifiers.Verify(t, v, h, body, now)
			if refusal != "" {
				continue
			}
			msg := events[0].Message
			if msg.Time.IsZero() != (v == untimed) {
				t.Errorf("%q has the time %v", body, msg.Time)
			}
			if msg.Topic == "" {
				continue
			}
			var handler struct {
				Type string `json:"type"`
			}
			// An error is about a second member, such as {"Type":5}: that is refused.
			if err := json.Unmarshal([]byte(body), &handler); err != nil || handler.Type != msg.Topic {
				t.Errorf("%q has the type %q, and a handler reads %q, %v", body, msg.Topic, handler.Type, err)
			}
		}
	})
}
