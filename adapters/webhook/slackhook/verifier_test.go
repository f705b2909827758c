package slackhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/slackhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/verifiers"
)

const (
	secret    = "0123456789abcdef0123456789abcdef"
	oldSecret = "fedcba9876543210fedcba9876543210"
	stranger  = "00112233445566778899aabbccddeeff"

	body = `{"token":"x","team_id":"T1","api_app_id":"A1",` +
		`"event":{"type":"app_mention","user":"U1","text":"<@U0> hi","event_ts":"1772359198.000100"},` +
		`"type":"event_callback","event_id":"Ev08MFMKH6","event_time":1772359198,"authorizations":[{"team_id":"T1"}]}`
	challenge = `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC) // 1772359200

// v0 is the scheme as Slack describes it, without this package's code.
func v0(secret, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%s:%s", timestamp, body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }

func headers(signature, timestamp string) http.Header {
	h := http.Header{}
	h.Set("X-Slack-Signature", signature)
	h.Set("X-Slack-Request-Timestamp", timestamp)
	return h
}

func newVerifier(t testing.TB, secrets ...string) *slackhook.Verifier {
	t.Helper()
	v, err := slackhook.New(slackhook.Config{Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func verify(t testing.TB, v webhook.Verifier, h http.Header, body string) (webhook.Event, webhook.Refusal) {
	t.Helper()
	return verifiers.VerifyOne(t, v, h, body, now)
}

func TestVerify(t *testing.T) {
	v := newVerifier(t, secret)
	first := headers(v0(secret, unix(now), body), unix(now))
	retry := headers(v0(secret, unix(now.Add(time.Minute)), body), unix(now.Add(time.Minute)))
	retry.Set("X-Slack-Retry-Num", "2")
	retry.Set("X-Slack-Retry-Reason", "http_timeout")
	fingerprint := dedup.FingerprintOf([]byte("app_mention\x00T1"))
	want := webhook.Event{Message: consumer.Message{
		ID: "Ev08MFMKH6", Tenant: "slack/A1", Topic: "app_mention", Payload: []byte(body),
		Time: time.Unix(1772359198, 0).UTC(), Fingerprint: &fingerprint,
	}}
	for name, h := range map[string]http.Header{"the first attempt": first, "a retry, with a new signature": retry} {
		t.Run(name, func(t *testing.T) {
			event, refusal := verify(t, v, h, body)
			if diff := cmp.Diff(want, event); refusal != "" || diff != "" {
				t.Errorf("refused as %q\n%s", refusal, diff)
			}
		})
	}
	source := webhook.Source{
		Name: "slack", Horizon: 48 * time.Hour, Deadline: 3 * time.Second,
		GiveUpAfter: 4 * time.Minute, MaxBody: 4 << 20,
	}
	if diff := cmp.Diff(source, v.Source()); diff != "" {
		t.Error(diff)
	}
}

func TestRefuses(t *testing.T) {
	ts := unix(now)
	good := v0(secret, ts, body)
	h := headers(good, ts)
	at := func(ts string) http.Header { return headers(v0(secret, ts, body), ts) }
	for _, test := range []struct {
		name   string
		header http.Header
		body   string // empty: body
		want   webhook.Refusal
	}{
		{"case 47: missing signature", verifiers.Change(h, "X-Slack-Signature"), "", webhook.Unsigned},
		{"case 47: empty signature", verifiers.Change(h, "X-Slack-Signature", ""), "", webhook.Unsigned},
		{"case 47: duplicate signature", verifiers.Change(h, "X-Slack-Signature", good, good), "", webhook.Unsigned},
		{"case 47: missing time", verifiers.Change(h, "X-Slack-Request-Timestamp"), "", webhook.Unsigned},
		{"case 47: duplicate time", verifiers.Change(h, "X-Slack-Request-Timestamp", ts, ts), "", webhook.Unsigned},
		{"case 48: exactly as old as allowed", at(unix(now.Add(-5 * time.Minute))), "", ""},
		{"case 48: older", at(unix(now.Add(-5*time.Minute - time.Second))), "", webhook.BadTime},
		{"case 48: exactly as far ahead as allowed", at(unix(now.Add(5 * time.Minute))), "", ""},
		{"case 48: further ahead", at(unix(now.Add(5*time.Minute + time.Second))), "", webhook.BadTime},
		{"E22: 2^62", at("4611686018427387904"), "", webhook.Unsigned},
		{"E22: negative", at("-1772359200"), "", webhook.Unsigned},
		{"E22: the largest number", at("99999999999"), "", webhook.BadTime},
		{"case 49: a newline more", h, body + "\n", webhook.BadSignature},
		{"case 49: a byte order mark", h, "\ufeff" + body, webhook.BadSignature},
		{"case 49: other white space", h, strings.ReplaceAll(body, ":", ": "), webhook.BadSignature},
		{
			"case 50: an unknown version", verifiers.Change(h, "X-Slack-Signature", "v1="+good[3:]), "",
			webhook.BadSignature,
		},
		{"case 50: no version", verifiers.Change(h, "X-Slack-Signature", good[3:]), "", webhook.BadSignature},
		{"case 51: truncated", verifiers.Change(h, "X-Slack-Signature", good[:20]), "", webhook.BadSignature},
		{"case 51: only the version", verifiers.Change(h, "X-Slack-Signature", "v0="), "", webhook.BadSignature},
		{"case 51: longer", verifiers.Change(h, "X-Slack-Signature", good+"00"), "", webhook.BadSignature},
		{
			"case 51: in capitals", verifiers.Change(h, "X-Slack-Signature", "v0="+strings.ToUpper(good[3:])), "",
			webhook.BadSignature,
		},
		{
			"another time", verifiers.Change(h, "X-Slack-Request-Timestamp", unix(now.Add(time.Second))), "",
			webhook.BadSignature,
		},
		{
			"digits moved from the time to the body", verifiers.Change(h, "X-Slack-Request-Timestamp", ts[:9]),
			ts[9:] + ":" + body, webhook.BadSignature,
		},
		{
			"a stranger's signature", verifiers.Change(h, "X-Slack-Signature", v0(stranger, ts, body)), "",
			webhook.BadSignature,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.body == "" {
				test.body = body
			}
			if _, refusal := verify(t, newVerifier(t, secret), test.header, test.body); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	verifiers.TestRotation(t, secret, oldSecret, stranger, func(t *testing.T, secrets []string, signer string) webhook.Refusal {
		_, refusal := verify(t, newVerifier(t, secrets...), headers(v0(signer, unix(now), body), unix(now)), body)
		return refusal
	})
}
