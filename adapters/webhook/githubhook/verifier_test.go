package githubhook_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

const (
	secret    = "the secret of the hook"
	oldSecret = "the secret before that"
	stranger  = "the secret of a stranger"

	guid      = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	otherGUID = "8c1f2a60-cc78-11e3-9d1e-4c9367dc0958"

	body     = `{"action":"published","release":{"id":17,"tag_name":"v1.2.0"},"repository":{"id":5}}`
	pingBody = `{"zen":"Design for failure.","hook_id":99,"hook":{"type":"Repository","id":99}}`
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// sha256Of is the scheme as GitHub describes it, without this package's code.
func sha256Of(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func sha1Of(secret, body string) string {
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha1=" + hex.EncodeToString(mac.Sum(nil))
}

func headers(signature, guid, event string) http.Header {
	h := http.Header{}
	h.Set("X-Hub-Signature-256", signature)
	h.Set("X-GitHub-Delivery", guid)
	h.Set("X-GitHub-Event", event)
	return h
}

func form(json string) string { return "payload=" + url.QueryEscape(json) }

func newVerifier(t testing.TB, change func(*githubhook.Config)) *githubhook.Verifier {
	t.Helper()
	cfg := githubhook.Config{Endpoint: "releases-hook", Topic: "release", Secrets: []string{secret}}
	if change != nil {
		change(&cfg)
	}
	v, err := githubhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func trustTopic(c *githubhook.Config) { c.Topic, c.TrustTopicHeader = "", true }

func verify(t testing.TB, v webhook.Verifier, h http.Header, body string) (webhook.Event, webhook.Refusal) {
	t.Helper()
	return verifiers.VerifyOne(t, v, h, body, now)
}

func TestVerify(t *testing.T) {
	v := newVerifier(t, nil)
	for _, test := range []struct{ name, body string }{
		{"JSON", body},
		{"E24: a form", form(body)},
		{"E24: a form with other escapes", "payload=" + strings.NewReplacer(`"`, "%22", " ", "+").Replace(body)},
	} {
		t.Run(test.name, func(t *testing.T) {
			event, refusal := verify(t, v, headers(sha256Of(secret, test.body), guid, "release"), test.body)
			if refusal != "" {
				t.Fatalf("refused as %q", refusal)
			}
			msg := event.Message
			if msg.ID != guid || msg.Tenant != "github/releases-hook" || msg.Topic != "release" ||
				string(msg.Payload) != body || event.Drop != "" {
				t.Errorf("event %+v", event)
			}
			if !msg.Time.IsZero() || msg.Headers != nil {
				t.Errorf("E26: time %v and headers %v, and neither is signed", msg.Time, msg.Headers)
			}
			want, _ := verify(t, v, headers(sha256Of(secret, body), guid, "release"), body)
			if diff := cmp.Diff(want, event); diff != "" {
				t.Errorf("a redelivery as JSON is another event:\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(webhook.Source{
		Name: "github", Horizon: 400 * 24 * time.Hour, Deadline: 10 * time.Second,
		MaxBody: 25 << 20,
	}, v.Source()); diff != "" {
		t.Errorf("E26: %s", diff)
	}
}

func TestRefuses(t *testing.T) {
	good := sha256Of(secret, body)
	h := headers(good, guid, "release")
	signed := func(signature string) http.Header { return verifiers.Change(h, "X-Hub-Signature-256", signature) }
	of := func(body string) http.Header { return headers(sha256Of(secret, body), guid, "release") }
	twoFields := form(body) + "&payload=%7B%7D"
	otherField := form(body) + "&x=1"
	deep := `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`

	for _, test := range []struct {
		name   string
		header http.Header
		body   string
		want   webhook.Refusal
	}{
		{"case 47: missing signature", verifiers.Change(h, "X-Hub-Signature-256"), body, webhook.Unsigned},
		{"case 47: empty signature", signed(""), body, webhook.Unsigned},
		{
			"case 47: duplicate signature", verifiers.Change(h, "X-Hub-Signature-256", good, good), body,
			webhook.Unsigned,
		},
		{"case 49: a newline more", h, body + "\n", webhook.BadSignature},
		{"case 49: a byte order mark", h, "\ufeff" + body, webhook.BadSignature},
		{"case 49: other white space", h, strings.ReplaceAll(body, ":", ": "), webhook.BadSignature},
		{"case 50: only SHA-1", verifiers.Change(verifiers.Change(h, "X-Hub-Signature-256"), "X-Hub-Signature",
			sha1Of(secret, body)), body, webhook.Unsigned},
		{"case 50: SHA-1 in the header of SHA-256", signed(sha1Of(secret, body)), body, webhook.BadSignature},
		{
			"case 50: SHA-1 is right, SHA-256 is not",
			verifiers.Change(signed(sha256Of(stranger, body)), "X-Hub-Signature", sha1Of(secret, body)), body,
			webhook.BadSignature,
		},
		{"case 50: without the algorithm", signed(good[7:]), body, webhook.BadSignature},
		{"case 51: truncated", signed(good[:20]), body, webhook.BadSignature},
		{"case 51: only the algorithm", signed("sha256="), body, webhook.BadSignature},
		{"case 51: longer", signed(good + "00"), body, webhook.BadSignature},
		{"case 51: in capitals", signed("sha256=" + strings.ToUpper(good[7:])), body, webhook.BadSignature},
		{"a stranger's signature", signed(sha256Of(stranger, body)), body, webhook.BadSignature},
		{"a body that is empty", of(""), "", webhook.Malformed},

		{"missing ID", verifiers.Change(h, "X-GitHub-Delivery"), body, webhook.Malformed},
		{"empty ID", verifiers.Change(h, "X-GitHub-Delivery", ""), body, webhook.Malformed},
		{"two IDs", verifiers.Change(h, "X-GitHub-Delivery", guid, otherGUID), body, webhook.Malformed},
		{
			"case 72: an ID of 256 bytes", verifiers.Change(h, "X-GitHub-Delivery", strings.Repeat("a", 256)), body,
			webhook.Malformed,
		},
		{"case 72: an ID with NUL", verifiers.Change(h, "X-GitHub-Delivery", guid+"\x00"), body, webhook.Malformed},
		{
			"case 71: an ID that is not UTF-8", verifiers.Change(h, "X-GitHub-Delivery", guid+"\xff"), body,
			webhook.Malformed,
		},
		{
			"an ID that could be an alias", verifiers.Change(h, "X-GitHub-Delivery", "body-sha256=00"), body,
			webhook.Malformed,
		},
		{"missing type", verifiers.Change(h, "X-GitHub-Event"), body, webhook.Malformed},
		{"two types", verifiers.Change(h, "X-GitHub-Event", "release", "push"), body, webhook.Malformed},
		{"E17: another type", verifiers.Change(h, "X-GitHub-Event", "push"), body, webhook.WrongApp},
		{"E17: the type in capitals", verifiers.Change(h, "X-GitHub-Event", "Release"), body, webhook.WrongApp},
		{"E17: a body of another event as ping", verifiers.Change(h, "X-GitHub-Event", "ping"), body, webhook.WrongApp},

		{"case 71: nested 9,000 levels deep", of(deep), deep, webhook.Malformed},
		{"an array", of("[]"), "[]", webhook.Malformed},
		{"E24: a form with payload twice", of(twoFields), twoFields, webhook.Malformed},
		{"E24: a form with another field", of(otherField), otherField, webhook.Malformed},
		{"E24: a form with a broken escape", of("payload=%zz"), "payload=%zz", webhook.Malformed},
		{"E24: a form without JSON", of("payload=1"), "payload=1", webhook.Malformed},
		{
			"E24: a form without payload", of("x=" + url.QueryEscape(body)), "x=" + url.QueryEscape(body),
			webhook.Malformed,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, refusal := verify(t, newVerifier(t, nil), test.header, test.body); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	verifiers.TestRotation(t, secret, oldSecret, stranger, func(t *testing.T, secrets []string, signer string) webhook.Refusal {
		v := newVerifier(t, func(c *githubhook.Config) { c.Secrets = secrets })
		_, refusal := verify(t, v, headers(sha256Of(signer, body), guid, "release"), body)
		return refusal
	})
}

// The scope of the second key, and of the fingerprint that protects an ID from a captured body.
func TestAliases(t *testing.T) {
	const otherBody = `{"action":"published","release":{"id":18}}`
	otherHook := func(c *githubhook.Config) { c.Endpoint = "app" }
	otherTopic := func(c *githubhook.Config) { c.Topic = "push" }
	first, _ := verify(t, newVerifier(t, nil), headers(sha256Of(secret, body), guid, "release"), body)
	for _, test := range []struct {
		name                     string
		change                   func(*githubhook.Config)
		guid, event, body        string
		sameKey, sameAlias, same bool // same: the same fingerprint
	}{
		{"a redelivery", nil, guid, "release", body, true, true, true},
		{"case 54: a new ID", nil, otherGUID, "release", body, false, true, true},
		{"case 54: a new ID, and a form", nil, otherGUID, "release", form(body), false, true, true},
		{"another body with the same ID, as another app gets it", nil, guid, "release", otherBody, true, false, false},
		{"E17: another hook or app", otherHook, guid, "release", body, false, false, false},
		{"E17: another topic", otherTopic, guid, "push", body, true, false, false},
		{"E17: another topic in the header", trustTopic, guid, "push", body, true, false, false},
		{"the same topic in the header", trustTopic, guid, "release", body, true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			event, refusal := verify(t, newVerifier(t, test.change), headers(sha256Of(secret, test.body), test.guid,
				test.event), test.body)
			if refusal != "" {
				t.Fatalf("refused as %q", refusal)
			}
			a, b := first.Message, event.Message
			if len(b.Aliases) != 1 {
				t.Fatalf("aliases %q", b.Aliases)
			}
			sameKey := a.Tenant == b.Tenant && a.ID == b.ID
			sameAlias := a.Tenant == b.Tenant && a.Aliases[0] == b.Aliases[0]
			if sameKey != test.sameKey || sameAlias != test.sameAlias {
				t.Errorf("the same key: %v, the same alias: %v", sameKey, sameAlias)
			}
			if same := *a.Fingerprint == *b.Fingerprint; same != test.same || a.Fingerprint.IsZero() ||
				b.Fingerprint.IsZero() {
				t.Errorf("the same fingerprint: %v", same)
			}
		})
	}
}

func TestPing(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*githubhook.Config)
		event  string
		body   string
	}{
		{"JSON", nil, "ping", pingBody},
		{"a form", nil, "ping", form(pingBody)},
		{"with a trusted header", trustTopic, "ping", pingBody},
		{"under another type, which is not signed", trustTopic, "release", pingBody},
	} {
		t.Run(test.name, func(t *testing.T) {
			event, refusal := verify(t, newVerifier(t, test.change), headers(sha256Of(secret, test.body), guid,
				test.event), test.body)
			if refusal != "" || event.Drop == "" || event.Message.Topic != "ping" {
				t.Errorf("refused as %q; event %+v, want one to drop", refusal, event)
			}
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		h := headers(sha256Of(stranger, pingBody), guid, "ping")
		if event, refusal := verify(t, newVerifier(t, nil), h, pingBody); refusal != webhook.BadSignature {
			t.Errorf("event %+v", event)
		}
	})
	t.Run("not all of a ping's members", func(t *testing.T) {
		const body = `{"zen":"a","hook_id":1}`
		if _, refusal := verify(t, newVerifier(t, nil), headers(sha256Of(secret, body), guid, "ping"),
			body); refusal != webhook.WrongApp {
			t.Errorf("refused as %q", refusal)
		}
	})
}
