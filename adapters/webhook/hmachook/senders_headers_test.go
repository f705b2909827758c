package hmachook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

// zendesk signs a time in the form of RFC 3339 and the body. This is for its event subscriptions, whose events have an
// id of their own.
func zendesk(secret string) hmachook.Config {
	return hmachook.Config{
		Name: "zendesk", Secrets: []string{secret},
		SignatureHeader: "X-Zendesk-Webhook-Signature", SignatureEncoding: hmachook.Base64,
		TimestampHeader: "X-Zendesk-Webhook-Signature-Timestamp", TimestampFormat: hmachook.RFC3339,
		Signed:  "{timestamp}{body}",
		IDPaths: []string{"id"}, TopicPath: "type", ScopePath: "account_id", CreatedPath: "time",
		Deadline: 12 * time.Second,
	}
}

// twitch signs its message's id, which is in a header only, the time and the body. It tests an endpoint with a
// challenge, which it expects back. Its documentation says that messages older than 10 minutes are to be refused.
func twitch(secret string) hmachook.Config {
	return hmachook.Config{
		Name: "twitch", Secrets: []string{secret},
		SignatureHeader: "Twitch-Eventsub-Message-Signature", SignaturePrefix: "sha256=",
		SignatureEncoding: hmachook.Hex,
		TimestampHeader:   "Twitch-Eventsub-Message-Timestamp", TimestampFormat: hmachook.RFC3339,
		Tolerance: 10 * time.Minute,
		Signed:    "{header:Twitch-Eventsub-Message-Id}{timestamp}{body}",
		IDHeader:  "Twitch-Eventsub-Message-Id", TopicPath: "subscription.type",
		Handshake: hmachook.Handshake{
			Path: "challenge", ReplyPath: "challenge",
			Reply: webhook.Reply{ContentType: "text/plain"},
		},
	}
}

// calendly signs its timestamp, a dot and the body. Its events have no id: the invitee's URI and the type identify one.
func calendly(key string) hmachook.Config {
	return hmachook.Config{
		Name: "calendly", Secrets: []string{key},
		SignatureHeader: "Calendly-Webhook-Signature", SignatureElement: "v1", ElementSeparator: ",",
		SignatureEncoding: hmachook.Hex,
		TimestampElement:  "t", Signed: "{timestamp}.{body}",
		IDPaths: []string{"event", "payload.uri"}, TopicPath: "event", CreatedPath: "created_at",
	}
}

func hexMAC(text string) string { return hex.EncodeToString(mac(secret, text)) }

func mac(key, text string) []byte {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(text))
	return m.Sum(nil)
}

// The headers are made here without the package's own Sign, so that both would have to be wrong in the same way.
func TestSendersOfHeaders(t *testing.T) {
	const key, id = "key of the tests of senders", "e76c6bd4-55c9-4987-8304-da1588d8988b"
	zendeskBody := `{"account_id":12514403,"id":"01JC4","type":"zen:event-type:user.created","time":"2026-05-04T03:02:01Z","event":{}}`
	twitchBody := `{"subscription":{"id":"f1c2","type":"channel.follow","version":"2"},"event":{"user_id":"1337"}}`
	calendlyBody := `{"event":"invitee.created","created_at":"2026-05-04T03:02:01.000000Z","payload":{"uri":"https://example.com/i/1"}}`
	for _, test := range []struct {
		name                  string
		cfg                   hmachook.Config
		body                  string
		header                map[string]string
		id, tenant, eventType string
	}{
		{"Zendesk", zendesk(key), zendeskBody, map[string]string{
			"X-Zendesk-Webhook-Signature": base64.StdEncoding.EncodeToString(mac(key,
				"2026-05-28T20:26:40Z"+zendeskBody)),
			"X-Zendesk-Webhook-Signature-Timestamp": "2026-05-28T20:26:40Z",
		}, "01JC4", "zendesk/12514403", "zen:event-type:user.created"},
		{"Twitch", twitch(key), twitchBody, map[string]string{
			"Twitch-Eventsub-Message-Signature": "sha256=" +
				hex.EncodeToString(mac(key, id+"2026-05-28T20:26:40.123456789Z"+twitchBody)),
			"Twitch-Eventsub-Message-Timestamp": "2026-05-28T20:26:40.123456789Z", "Twitch-Eventsub-Message-Id": id,
		}, id, "twitch", "channel.follow"},
		{"Calendly", calendly(key), calendlyBody, map[string]string{
			"Calendly-Webhook-Signature": "t=1780000000,v1=" + hex.EncodeToString(mac(key, "1780000000."+calendlyBody)),
		}, "invitee.created:https\\://example.com/i/1", "calendly", "invitee.created"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, d := newVerifier(t, test.cfg), delivery(test.body, test.header)
			events, err := v.Verify(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			m := events[0].Message
			if m.ID != test.id || m.Tenant != test.tenant || m.Topic != test.eventType || m.Aliases != nil {
				t.Errorf("%+v", m)
			}
			for name, value := range test.header {
				changed := delivery(test.body, test.header)
				changed.Header.Add(name, value)
				refused(t, v, changed, webhook.Unsigned) // twice
				changed.Header.Del(name)
				refused(t, v, changed, webhook.Unsigned)
				if !strings.Contains(name, "Signature") || strings.Contains(name, "Timestamp") {
					changed.Header.Set(name, strings.Replace(value, "6", "7", 1))
					refused(t, v, changed, webhook.BadSignature)
				}
			}
			d.Body = append(d.Body, ' ')
			refused(t, v, d, webhook.BadSignature)
		})
	}
}

func delivery(body string, header map[string]string) *webhook.Delivery {
	d := &webhook.Delivery{Header: http.Header{}, Body: []byte(body), URL: target, Time: now}
	for name, value := range header {
		d.Header.Set(name, value)
	}
	return d
}

// Twitch tests the endpoint of a new subscription.
func TestHandshake(t *testing.T) {
	cfg := twitch(secret)
	v := newVerifier(t, cfg)
	deliver := func(body string) *webhook.Delivery {
		d := delivery(body, map[string]string{"Twitch-Eventsub-Message-Id": "m1"})
		signTo(t, v, d)
		return d
	}
	events, err := v.Verify(t.Context(), deliver(`{"challenge":"pogchamp-kappa-360noscope","subscription":{"type":"channel.follow"}}`))
	if err != nil || events[0].Drop == "" || events[0].Reply == nil ||
		string(events[0].Reply.Body) != "pogchamp-kappa-360noscope" {
		t.Fatalf("%+v, %v", events, err)
	}
	for _, body := range []string{
		`{"challenge":"a","challenge":"b"}`, `{"challenge":"a","Challenge":"b"}`, `{"Challenge":"a"}`,
		`{"challenge":{}}`, `{"challenge":null}`,
	} {
		refused(t, v, deliver(body), webhook.Malformed)
	}
	forged := deliver(`{"challenge":"a"}`)
	forged.Body = []byte(`{"challenge":"b"}`)
	refused(t, v, forged, webhook.BadSignature)

	cfg = with(simple(), func(c *hmachook.Config) {
		c.Handshake = hmachook.Handshake{Path: "type", Value: "1", Reply: webhook.Reply{Status: http.StatusNoContent}}
	})
	v = newVerifier(t, cfg)
	for body, drop := range map[string]bool{
		`{"id":"e1","type":1}`: true, `{"id":"e1","type":2}`: false,
		`{"id":"e1"}`: false,
	} {
		events, err := v.Verify(t.Context(), signed(t, cfg, body))
		if err != nil || (events[0].Drop != "") != drop || drop && events[0].Reply.Status != http.StatusNoContent {
			t.Errorf("%s: %+v, %v", body, events, err)
		}
	}
}

// signTo signs d, which has the headers that are signed.
func signTo(t testing.TB, v *hmachook.Verifier, d *webhook.Delivery) {
	t.Helper()
	if err := v.SignTo(d.Header, nil, "", d.Body, now); err != nil {
		t.Fatal(err)
	}
}
