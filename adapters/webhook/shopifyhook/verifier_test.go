package shopifyhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

const (
	secret    = "shpss_0123456789abcdef0123456789abcdef"
	oldSecret = "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"
	stranger  = "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"

	event      = "98880550-7158-44d4-b7cd-2c97c8a091b5"
	otherEvent = "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"
	delivery   = "11111111-2222-3333-4444-555555555555" // X-Shopify-Webhook-Id

	topic = "orders/paid"
	shop  = "acme.myshopify.com"
	body  = `{"id":820982911946154508,"total_price":"19.00","updated_at":"2026-03-01T09:59:58Z"}`
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// mac is the scheme as Shopify describes it, without this package's code.
func mac(secret, body string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return mac.Sum(nil)
}

func signature(secret, body string) string {
	return base64.StdEncoding.EncodeToString(mac(secret, body))
}

func headers(signature, event, topic string) http.Header {
	h := http.Header{}
	h.Set("X-Shopify-Hmac-SHA256", signature)
	h.Set("X-Shopify-Event-Id", event)
	h.Set("X-Shopify-Webhook-Id", delivery)
	h.Set("X-Shopify-Topic", topic)
	h.Set("X-Shopify-Shop-Domain", shop)
	return h
}

func newVerifier(t testing.TB, change func(*shopifyhook.Config)) *shopifyhook.Verifier {
	t.Helper()
	cfg := shopifyhook.Config{Endpoint: "orders", Topic: topic, Secrets: []string{secret}}
	if change != nil {
		change(&cfg)
	}
	v, err := shopifyhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func trustTopic(c *shopifyhook.Config) { c.Topic, c.TrustTopicHeader = "", true }
func trustShop(c *shopifyhook.Config)  { c.TrustShopHeader = true }
func oneShop(c *shopifyhook.Config)    { c.Shop = shop }

func verify(t testing.TB, v webhook.Verifier, h http.Header, body string) (webhook.Event, webhook.Refusal) {
	t.Helper()
	return verifiers.VerifyOne(t, v, h, body, now)
}

func TestVerify(t *testing.T) {
	v := newVerifier(t, nil)
	for _, test := range []struct {
		name, body string
		header     http.Header
	}{
		{"JSON", body, headers(signature(secret, body), event, topic)},
		{"E24: XML", "<order/>", headers(signature(secret, "<order/>"), event, topic)},
		{"the second subscription's delivery", body, verifiers.Change(headers(signature(secret, body), event, topic),
			"X-Shopify-Webhook-Id", "another")},
		{"without a delivery's ID", body, verifiers.Change(headers(signature(secret, body), event, topic),
			"X-Shopify-Webhook-Id")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, refusal := verify(t, v, test.header, test.body)
			if refusal != "" {
				t.Fatalf("refused as %q", refusal)
			}
			msg := got.Message
			if msg.ID != topic+":"+event || msg.Tenant != "shopify/orders" || msg.Topic != topic ||
				string(msg.Payload) != test.body || got.Drop != "" {
				t.Errorf("event %+v", got)
			}
			if !msg.Time.IsZero() || msg.Headers != nil {
				t.Errorf("E26: time %v and headers %v, and neither is signed", msg.Time, msg.Headers)
			}
		})
	}
	if diff := cmp.Diff(webhook.Source{
		Name: "shopify", Horizon: 400 * 24 * time.Hour, Deadline: 5 * time.Second,
		MaxBody: 16 << 20,
	}, v.Source()); diff != "" {
		t.Errorf("E26: %s", diff)
	}
}

func TestRefuses(t *testing.T) {
	good := signature(secret, body)
	h := headers(good, event, topic)
	signed := func(signature string) http.Header { return verifiers.Change(h, "X-Shopify-Hmac-SHA256", signature) }
	for _, test := range []struct {
		name   string
		header http.Header
		body   string // empty: body
		want   webhook.Refusal
	}{
		{"case 47: missing signature", verifiers.Change(h, "X-Shopify-Hmac-SHA256"), "", webhook.Unsigned},
		{"case 47: empty signature", signed(""), "", webhook.Unsigned},
		{
			"case 47: duplicate signature", verifiers.Change(h, "X-Shopify-Hmac-SHA256", good, good), "",
			webhook.Unsigned,
		},
		{"case 49: a newline more", h, body + "\n", webhook.BadSignature},
		{"case 49: a byte order mark", h, "\ufeff" + body, webhook.BadSignature},
		{"case 49: other white space", h, strings.ReplaceAll(body, ":", ": "), webhook.BadSignature},
		{"case 50: in hex", signed(hex.EncodeToString(mac(secret, body))), "", webhook.BadSignature},
		{"case 51: truncated", signed(good[:20]), "", webhook.BadSignature},
		{"case 51: without padding", signed(strings.TrimRight(good, "=")), "", webhook.BadSignature},
		{"case 51: longer", signed(good + "AAAA"), "", webhook.BadSignature},
		{"case 51: only padding", signed("===="), "", webhook.BadSignature},
		{
			"case 51: with a newline inside, which base64 skips", signed(good[:8] + "\n" + good[8:]), "",
			webhook.BadSignature,
		},
		{"a stranger's signature", signed(signature(stranger, body)), "", webhook.BadSignature},

		{"missing ID", verifiers.Change(h, "X-Shopify-Event-Id"), "", webhook.Malformed},
		{"empty ID", verifiers.Change(h, "X-Shopify-Event-Id", ""), "", webhook.Malformed},
		{"two IDs", verifiers.Change(h, "X-Shopify-Event-Id", event, otherEvent), "", webhook.Malformed},
		{
			"case 72: an ID of 256 bytes", verifiers.Change(h, "X-Shopify-Event-Id", strings.Repeat("a", 256)), "",
			webhook.Malformed,
		},
		{"case 72: an ID with NUL", verifiers.Change(h, "X-Shopify-Event-Id", event+"\x00"), "", webhook.Malformed},
		{
			"case 71: an ID that is not UTF-8", verifiers.Change(h, "X-Shopify-Event-Id", event+"\xff"), "",
			webhook.Malformed,
		},
		{
			"an ID that could be an alias", verifiers.Change(h, "X-Shopify-Event-Id", "body-sha256=00"), "",
			webhook.Malformed,
		},
		{"missing topic", verifiers.Change(h, "X-Shopify-Topic"), "", webhook.Malformed},
		{"two topics", verifiers.Change(h, "X-Shopify-Topic", topic, "orders/create"), "", webhook.Malformed},
		{
			"a topic with a colon, which could be part of the ID", verifiers.Change(h, "X-Shopify-Topic", "orders:paid"),
			"", webhook.Malformed,
		},
		{"E17: another topic", verifiers.Change(h, "X-Shopify-Topic", "orders/create"), "", webhook.WrongApp},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.body == "" {
				test.body = body
			}
			if _, refusal := verify(t, newVerifier(t, nil), test.header, test.body); refusal != test.want {
				t.Errorf("refused as %q, want %q", refusal, test.want)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	verifiers.TestRotation(t, secret, oldSecret, stranger, func(t *testing.T, secrets []string, signer string) webhook.Refusal {
		v := newVerifier(t, func(c *shopifyhook.Config) { c.Secrets = secrets })
		_, refusal := verify(t, v, headers(signature(signer, body), event, topic), body)
		return refusal
	})
}

func TestShop(t *testing.T) {
	const other = "evil.myshopify.com"
	h := headers(signature(secret, body), event, topic)
	for _, test := range []struct {
		name   string
		change func(*shopifyhook.Config)
		header http.Header
		shop   string
		want   webhook.Refusal
	}{
		{"E26: not vouched for", nil, h, "", ""},
		{"not needed", nil, verifiers.Change(h, "X-Shopify-Shop-Domain"), "", ""},
		{"trusted", trustShop, h, shop, ""},
		{"trusted, missing", trustShop, verifiers.Change(h, "X-Shopify-Shop-Domain"), "", webhook.Malformed},
		{"trusted, twice", trustShop, verifiers.Change(h, "X-Shopify-Shop-Domain", shop, other), "", webhook.Malformed},
		{
			"trusted, not a domain", trustShop, verifiers.Change(h, "X-Shopify-Shop-Domain", "evil.io/?"+shop), "",
			webhook.Malformed,
		},
		{"one shop", oneShop, h, shop, ""},
		{"one shop, another", oneShop, verifiers.Change(h, "X-Shopify-Shop-Domain", other), "", webhook.WrongApp},
		{"one shop, missing", oneShop, verifiers.Change(h, "X-Shopify-Shop-Domain"), "", webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, refusal := verify(t, newVerifier(t, test.change), test.header, body)
			if refusal != test.want || got.Message.Headers[shopifyhook.ShopHeader] != test.shop {
				t.Errorf("refused as %q, headers %v; want %q, %q", refusal, got.Message.Headers, test.want, test.shop)
			}
		})
	}
}
