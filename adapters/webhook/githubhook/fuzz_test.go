package githubhook_test

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

// FuzzVerify begins with deliveries that are right. Of what it makes of them, only deliveries whose signature the test
// itself makes for the same body may be accepted, and a body that is accepted has one alias, whatever its ID.
func FuzzVerify(f *testing.F) {
	for _, body := range []string{
		body, form(body), pingBody, "payload=%7B%7D&payload=%7B%7D",
		`{"zen":1,"Zen":2}`, "",
	} {
		f.Add(sha256Of(secret, body), guid, "release", body)
	}
	f.Add(sha1Of(secret, body), guid, "release", body)
	f.Add(sha256Of(secret, body), "body-sha256=00", "ping", body)
	v, trusting := newVerifier(f, nil), newVerifier(f, trustTopic)
	f.Fuzz(func(t *testing.T, signature, guid, event, body string) {
		h := headers(signature, guid, event)
		for _, v := range []*githubhook.Verifier{v, trusting} {
			got, refusal := verify(t, v, h, body)
			if refusal != "" {
				continue
			}
			if signature != sha256Of(secret, body) {
				t.Errorf("accepted without a signature: %q for %q", signature, body)
			}
			msg := got.Message
			if got.Drop == "" && msg.Topic != event || msg.ID != guid || strings.Contains(guid, "=") ||
				len(msg.Aliases) != 1 {
				t.Errorf("ID %q and type %q became %+v", guid, event, got)
			}
			if payload := string(msg.Payload); payload != body && "payload="+payload != unescape(body) {
				t.Errorf("body %q became %q", body, payload)
			}
			again, _ := verify(t, v, verifiers.Change(h, "X-GitHub-Delivery", "another-id"), body)
			if len(again.Message.Aliases) != 1 || again.Message.Aliases[0] != msg.Aliases[0] {
				t.Errorf("with a new ID the alias of %q is new too", body)
			}
		}
	})
}

func unescape(form string) string {
	s, err := url.QueryUnescape(form)
	if err != nil {
		return ""
	}
	return s
}

// FuzzBody signs what the fuzzer makes, so that the body is decoded. What is accepted is a JSON object, and as a form
// it is the same event.
func FuzzBody(f *testing.F) {
	seeds := []string{
		body, form(body), pingBody, form(pingBody), "payload=%7B%7D&payload=%7B%7D", "payload=%zz",
		`{"zen":1,"Zen":2}`, "[]",
	}
	for _, body := range seeds {
		f.Add(body)
	}
	v := newVerifier(f, nil)
	f.Fuzz(func(t *testing.T, body string) {
		got, refusal := verify(t, v, headers(sha256Of(secret, body), guid, "release"), body)
		if refusal != "" {
			return
		}
		payload := string(got.Message.Payload)
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(payload), &object); err != nil {
			t.Fatalf("%q became %q: %v", body, payload, err)
		}
		if (got.Drop != "") != (len(object["zen"]) > 0 && len(object["hook_id"]) > 0 && len(object["hook"]) > 0) {
			t.Errorf("%q: dropped as %q", body, got.Drop)
		}
		again, refusal := verify(t, v, headers(sha256Of(secret, form(payload)), guid, "release"), form(payload))
		if refusal != "" || !reflect.DeepEqual(again, got) {
			t.Errorf("%q became %+v, and as a form %+v (refused as %q)", body, got, again, refusal)
		}
	})
}
