package standardhook_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/standardhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/verifiers"
)

const (
	id   = "msg_2aBcD"
	body = `{"type":"user.created","timestamp":"2026-03-01T10:00:00.5Z","data":{"id":7}}`
)

var (
	now = time.Date(2026, 3, 1, 10, 0, 5, 0, time.UTC)

	secret    = secretOf(1)
	oldSecret = secretOf(2)
	stranger  = secretOf(3)

	private      = ed25519.NewKeyFromSeed([]byte("a seed of 32 bytes for the tests"))
	publicKey    = "whpk_" + base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	strangersKey = ed25519.NewKeyFromSeed([]byte("another seed for a stranger's key"[:32]))
)

func secretOf(n byte) string {
	sum := sha256.Sum256([]byte{n})
	return "whsec_" + base64.StdEncoding.EncodeToString(sum[:])
}

// v1 is the scheme as the specification describes it, without this package's code.
func v1(secret, id, timestamp, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func v1a(key ed25519.PrivateKey, id, timestamp, body string) string {
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, fmt.Appendf(nil, "%s.%s.%s", id,
		timestamp, body)))
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }

func headers(prefix, id, timestamp, signature string) http.Header {
	h := http.Header{}
	h.Set(prefix+"-id", id)
	h.Set(prefix+"-timestamp", timestamp)
	h.Set(prefix+"-signature", signature)
	return h
}

func merge(all ...http.Header) http.Header {
	h := http.Header{}
	for _, one := range all {
		for name, values := range one {
			h[name] = append(h[name], values...)
		}
	}
	return h
}

func without(h http.Header, name string) http.Header {
	h = h.Clone()
	h.Del(name)
	return h
}

func newVerifier(t testing.TB, cfg standardhook.Config) *standardhook.Verifier {
	t.Helper()
	if cfg.Sender == "" {
		cfg.Sender = "clerk"
	}
	if cfg.Secrets == nil && cfg.PublicKeys == nil {
		cfg.Secrets = []string{secret}
	}
	v, err := standardhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerify(t *testing.T) {
	v := newVerifier(t, standardhook.Config{})
	events, refusal := verifiers.Verify(t, v, headers("webhook", id, unix(now), v1(secret, id, unix(now), body)),
		body, now)
	if refusal != "" {
		t.Fatal(refusal)
	}
	fingerprint := dedup.FingerprintOf([]byte("user.created"))
	want := []webhook.Event{{Message: consumer.Message{
		ID: id, Tenant: "clerk", Topic: "user.created", Payload: []byte(body), Fingerprint: &fingerprint,
	}}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(webhook.Source{
		Name: "clerk", Horizon: 90 * 24 * time.Hour, Deadline: 15 * time.Second,
		MaxBody: 1 << 20,
	}, v.Source()); diff != "" {
		t.Error(diff)
	}
}

func TestAcceptsAndRefuses(t *testing.T) {
	ts := unix(now)
	good := v1(secret, id, ts, body)
	raw := strings.TrimPrefix(good, "v1,")
	signed := func(signature string) http.Header { return headers("webhook", id, ts, signature) }
	sentAt := func(at time.Time) http.Header {
		return headers("webhook", id, unix(at), v1(secret, id, unix(at), body))
	}
	withID := func(id string) http.Header { return headers("webhook", id, ts, v1(secret, id, ts, body)) }
	withTime := func(ts string) http.Header { return headers("webhook", id, ts, v1(secret, id, ts, body)) }

	for _, test := range []struct {
		name   string
		header http.Header
		body   string // empty: body
		want   webhook.Refusal
	}{
		{"webhook-… headers", signed(good), "", ""},
		{"svix-… headers", headers("svix", id, ts, good), "", ""},

		{"case 47: no headers", http.Header{}, "", webhook.Unsigned},
		{"case 47: missing signature", without(signed(good), "webhook-signature"), "", webhook.Unsigned},
		{"case 47: empty signature", signed(""), "", webhook.Unsigned},
		{
			"case 47: duplicate signature", merge(signed(good), http.Header{"Webhook-Signature": {good}}), "",
			webhook.Unsigned,
		},
		{"case 47: duplicate id", merge(signed(good), http.Header{"Webhook-Id": {"msg_other"}}), "", webhook.Unsigned},
		{
			"case 47: duplicate timestamp", merge(signed(good), http.Header{"Webhook-Timestamp": {ts}}), "",
			webhook.Unsigned,
		},
		{"case 47: missing id", without(signed(good), "webhook-id"), "", webhook.Unsigned},
		{"case 47: missing timestamp", without(signed(good), "webhook-timestamp"), "", webhook.Unsigned},

		{"case 48: exactly as old as allowed", sentAt(now.Add(-5 * time.Minute)), "", ""},
		{"case 48: older", sentAt(now.Add(-5*time.Minute - time.Second)), "", webhook.BadTime},
		{"case 48: exactly as far ahead as allowed", sentAt(now.Add(5 * time.Minute)), "", ""},
		{"case 48: further ahead", sentAt(now.Add(5*time.Minute + time.Second)), "", webhook.BadTime},
		{"E22: 2^62", withTime("4611686018427387904"), "", webhook.Unsigned},
		{"E22: -1", withTime("-1"), "", webhook.Unsigned},
		{"E22: a fraction", withTime(ts + ".0"), "", webhook.Unsigned},
		{"E22: a plus sign", withTime("+" + ts), "", webhook.Unsigned},
		{"E22: the largest number", withTime("99999999999"), "", webhook.BadTime},
		{"E22: zero", withTime("0"), "", webhook.BadTime},

		{"case 49: a newline more", signed(good), body + "\n", webhook.BadSignature},
		{"case 49: a byte order mark", signed(good), "\ufeff" + body, webhook.BadSignature},
		{"case 49: other white space", signed(good), strings.ReplaceAll(body, ":", ": "), webhook.BadSignature},

		{"case 50: v0 only", signed("v0," + raw), "", webhook.Unsigned},
		{"case 50: an unknown version", signed("v2," + raw), "", webhook.Unsigned},
		{"case 50: no version", signed(raw), "", webhook.Unsigned},
		{"case 50: an HMAC as Ed25519 signature", signed("v1a," + raw), "", webhook.BadSignature},
		{"an unknown version is ignored beside v1", signed("v2,abc " + good), "", ""},

		{"case 51: truncated", signed(good[:len(good)-8]), "", webhook.BadSignature},
		{"case 51: a short prefix", signed("v1," + raw[:4]), "", webhook.BadSignature},
		{"case 51: nothing after the version", signed("v1,"), "", webhook.Unsigned},
		{"case 51: longer", signed(good + "AAAA"), "", webhook.BadSignature},
		{"case 51: without padding", signed(strings.TrimRight(good, "=")), "", webhook.BadSignature},
		{"case 51: in hex", signed(fmt.Sprintf("v1,%x", raw)), "", webhook.BadSignature},
		{
			"case 51: URL alphabet", signed("v1," + strings.NewReplacer("+", "-", "/", "_").Replace(raw) + "-"), "",
			webhook.BadSignature,
		},

		{"case 53: several signatures, one of ours", signed(v1(stranger, id, ts, body) + " " + good), "", ""},
		{
			"case 53: several signatures, none of ours",
			signed(v1(stranger, id, ts, body) + " " + v1(oldSecret, id, ts, body)), "", webhook.BadSignature,
		},
		{"too many signatures", signed(strings.Repeat("v1,x ", 32) + good), "", webhook.Unsigned},

		{"case 55: an ID with a dot", withID("msg.1"), "", webhook.Unsigned},
		{
			"case 55: digits moved from the time to the body", headers("webhook", id, ts[:9], good), ts[9:] + "." + body,
			webhook.BadSignature,
		},
		{"case 55: the time moved into the ID", headers("webhook", id+"."+ts, "1", good), body, webhook.Unsigned},
		{
			"case 55: the end of the ID moved to the time", headers("webhook", id[:4], id[4:]+"."+ts, good), "",
			webhook.Unsigned,
		},
		{"case 72: an ID of 255 bytes", withID(strings.Repeat("a", 255)), "", ""},
		{"case 72: a longer ID", withID(strings.Repeat("a", 256)), "", webhook.Unsigned},
		{"case 72: an ID with NUL", withID("msg\x00"), "", webhook.Unsigned},
		{"case 71: an ID that is not ASCII", withID("msg_\xff"), "", webhook.Unsigned},
		{"another ID", headers("webhook", "msg_other", ts, good), "", webhook.BadSignature},
		{"another time", headers("webhook", id, unix(now.Add(time.Second)), good), "", webhook.BadSignature},

		{"E25: both families, equal", merge(signed(good), headers("svix", id, ts, good)), "", ""},
		{
			"E25: both families, another ID", merge(signed(good), headers("svix", "msg_other", ts, good)), "",
			webhook.Unsigned,
		},
		{
			"E25: both families, each signed, another ID",
			merge(signed(good), headers("svix", "msg_other", ts, v1(secret, "msg_other", ts, body))), "",
			webhook.Unsigned,
		},
		{"E25: both families, another signature", merge(signed(good), headers("svix", id, ts, v1(stranger, id, ts, body))), "", webhook.Unsigned},
		{"E25: headers of two families", merge(
			without(signed(good), "webhook-id"),
			without(without(headers("svix", id, ts, good), "svix-timestamp"), "svix-signature")), "", webhook.Unsigned},
		{
			"E25: one header of the other family", merge(signed(good), http.Header{"Svix-Id": {id}}), "",
			webhook.Unsigned,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.body == "" {
				test.body = body
			}
			if _, refusal := verifiers.Verify(t, newVerifier(t, standardhook.Config{}), test.header, test.body,
				now); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	ts := unix(now)
	oldSigned, newSigned := v1(oldSecret, id, ts, body), v1(secret, id, ts, body)
	for _, test := range []struct {
		name      string
		secrets   []string
		signature string
		want      webhook.Refusal
	}{
		{"old", []string{secret, oldSecret}, oldSigned, ""},
		{"new", []string{secret, oldSecret}, newSigned, ""},
		{"both in the header", []string{secret, oldSecret}, oldSigned + " " + newSigned, ""},
		{"both in the header, only the new one configured", []string{secret}, oldSigned + " " + newSigned, ""},
		{"old, after its removal", []string{secret}, oldSigned, webhook.BadSignature},
	} {
		t.Run("case 53: "+test.name, func(t *testing.T) {
			v := newVerifier(t, standardhook.Config{Secrets: test.secrets})
			if _, refusal := verifiers.Verify(t, v, headers("webhook", id, ts, test.signature), body,
				now); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestEd25519(t *testing.T) {
	ts := unix(now)
	good := v1a(private, id, ts, body)
	point, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(publicKey, "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	// An HMAC whose key is the public key, which everybody knows.
	mac := v1("whsec_"+base64.StdEncoding.EncodeToString(point), id, ts, body)
	for _, test := range []struct {
		name      string
		secrets   []string
		signature string
		body      string
		want      webhook.Refusal
	}{
		{"of our key", nil, good, body, ""},
		{"of a stranger's key", nil, v1a(strangersKey, id, ts, body), body, webhook.BadSignature},
		{"case 53: one of several", nil, v1a(strangersKey, id, ts, body) + " " + good, body, ""},
		{"beside secrets", []string{secret}, good, body, ""},
		{"the secret's signature beside public keys", []string{secret}, v1(secret, id, ts, body), body, ""},
		{"case 49: another body", nil, good, body + " ", webhook.BadSignature},
		{"case 50: an HMAC with the public key", nil, mac, body, webhook.BadSignature},
		{
			"case 50: an HMAC with the public key, as v1a", nil, "v1a," + strings.TrimPrefix(mac, "v1,"), body,
			webhook.BadSignature,
		},
		{"case 50: an HMAC with the public key, beside secrets", []string{secret}, mac, body, webhook.BadSignature},
		{
			"case 50: an Ed25519 signature as v1", nil, "v1," + strings.TrimPrefix(good, "v1a,"), body,
			webhook.BadSignature,
		},
		{"case 51: truncated", nil, good[:len(good)-4], body, webhook.BadSignature},
		{
			"case 51: with a newline inside, which base64 skips", nil, good[:20] + "\n" + good[20:], body,
			webhook.BadSignature,
		},
		{"case 51: without padding", nil, strings.TrimRight(good, "="), body, webhook.BadSignature},
		{"case 51: other trailing bits", nil, otherTrailingBits(good), body, webhook.BadSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newVerifier(t, standardhook.Config{Secrets: test.secrets, PublicKeys: []string{publicKey}})
			if _, refusal := verifiers.Verify(t, v, headers("webhook", id, ts, test.signature), test.body,
				now); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

// otherTrailingBits changes bits of the last character before the padding that do not belong to any byte.
func otherTrailingBits(encoded string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	end := len(strings.TrimRight(encoded, "=")) - 1
	return encoded[:end] + string(alphabet[strings.IndexByte(alphabet, encoded[end])^1]) + encoded[end+1:]
}

func TestMessage(t *testing.T) {
	zero := dedup.Fingerprint{}
	of := func(topic string) dedup.Fingerprint { return dedup.FingerprintOf([]byte(topic)) }
	created := time.Date(2026, 3, 1, 10, 0, 0, 5e8, time.UTC)
	type want struct {
		Topic       string
		Fingerprint dedup.Fingerprint
		Time        time.Time
	}
	for _, test := range []struct {
		name, body, timeField string
		want                  *want // nil: malformed
	}{
		{
			"E26: the time of the attempt is not the event's", body, "",
			&want{"user.created", of("user.created"), time.Time{}},
		},
		{"E26: the signed time of the event", body, "timestamp", &want{"user.created", of("user.created"), created}},
		{
			"E26: in another zone", `{"type":"a","timestamp":"2026-03-01T11:00:00.5+01:00"}`, "timestamp",
			&want{"a", of("a"), created},
		},
		{
			"E26: the sender's own name for it", `{"type":"a","created":"2026-03-01T10:00:00.5Z"}`, "created",
			&want{"a", of("a"), created},
		},
		{"E18: the same type in other white space", "{ \"type\" : \"a\" }", "", &want{"a", of("a"), time.Time{}}},
		{"no type", `{"data":1}`, "", &want{"", zero, time.Time{}}},
		{"a type that is not a string", `{"type":5}`, "", &want{"", zero, time.Time{}}},
		{"E24: not JSON", "a=b&type=c", "", &want{"", zero, time.Time{}}},
		{"E24: an array", `[{"type":"a"}]`, "", &want{"", zero, time.Time{}}},
		{"E24: empty", "", "", &want{"", zero, time.Time{}}},
		{"case 71: two types", `{"type":"a","type":"b"}`, "", nil},
		{"case 71: two types in other case", `{"type":"a","Type":"b"}`, "", nil},
		{
			"case 71: nested 10,000 levels deep", strings.Repeat(`{"a":`, 9999) + "1" + strings.Repeat("}", 9999),
			"", nil,
		},
		{"time field: not JSON", "a=b", "timestamp", nil},
		{"time field: missing", `{"type":"a"}`, "timestamp", nil},
		{
			"time field: twice", `{"timestamp":"2026-03-01T10:00:00Z","timestamp":"2026-03-01T11:00:00Z"}`,
			"timestamp", nil,
		},
		{"time field: a number", `{"timestamp":1700000000}`, "timestamp", nil},
		{"time field: no time", `{"timestamp":"yesterday"}`, "timestamp", nil},
		{
			"time field: the zero time, which would mean unknown", `{"timestamp":"0001-01-01T00:00:00Z"}`,
			"timestamp", nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newVerifier(t, standardhook.Config{TimeField: test.timeField})
			events, refusal := verifiers.Verify(t, v, headers("webhook", id, unix(now),
				v1(secret, id, unix(now), test.body)), test.body, now)
			if test.want == nil {
				if refusal != webhook.Malformed {
					t.Errorf("refused as %q, want %q", refusal, webhook.Malformed)
				}
				return
			}
			if refusal != "" {
				t.Fatalf("refused as %q", refusal)
			}
			msg := events[0].Message
			if diff := cmp.Diff(*test.want, want{msg.Topic, *msg.Fingerprint, msg.Time}); diff != "" ||
				string(msg.Payload) != test.body {
				t.Errorf("payload %q, (-want +got)\n%s", msg.Payload, diff)
			}
		})
	}
}

func TestTenant(t *testing.T) {
	v := newVerifier(t, standardhook.Config{
		Sender: "svix", Endpoint: "eu", TimeField: "timestamp", GiveUpAfter: time.Hour, Horizon: 24 * time.Hour,
	})
	events, _ := verifiers.Verify(t, v, headers("webhook", id, unix(now), v1(secret, id, unix(now), body)), body, now)
	if len(events) != 1 || events[0].Message.Tenant != "svix/eu" {
		t.Errorf("events %+v, want the tenant svix/eu", events)
	}
	want := webhook.Source{
		Name: "svix", Horizon: 24 * time.Hour, Deadline: 15 * time.Second, GiveUpAfter: time.Hour,
		MaxBody: 1 << 20,
	}
	if diff := cmp.Diff(want, v.Source()); diff != "" {
		t.Error(diff)
	}
}
