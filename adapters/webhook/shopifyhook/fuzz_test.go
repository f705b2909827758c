package shopifyhook_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

// FuzzVerify begins with deliveries that are right. Of what it makes of them, only deliveries whose signature the test
// itself makes for the same body may be accepted, and a body that is accepted has one alias, whatever its ID and shop.
func FuzzVerify(f *testing.F) {
	f.Add(signature(secret, body), event, topic, shop, body)
	f.Add(signature(secret, ""), event, topic, shop, "")
	f.Add(signature(secret, body), "body-sha256=00", "a:b", "evil.io/", body)
	f.Add(signature(stranger, body), event, topic, shop, body)
	v := newVerifier(f, nil)
	trusting := newVerifier(f, func(c *shopifyhook.Config) { trustTopic(c); trustShop(c) })
	f.Fuzz(func(t *testing.T, sig, event, topic, shop, body string) {
		h := verifiers.Change(headers(sig, event, topic), "X-Shopify-Shop-Domain", shop)
		for _, v := range []*shopifyhook.Verifier{v, trusting} {
			got, refusal := verify(t, v, h, body)
			if refusal != "" {
				continue
			}
			if sig != signature(secret, body) {
				t.Errorf("accepted without a signature: %q for %q", sig, body)
			}
			msg := got.Message
			if msg.Topic != topic || msg.ID != topic+":"+event || strings.Contains(msg.ID, "=") ||
				string(msg.Payload) != body || len(msg.Aliases) != 1 {
				t.Errorf("ID %q, topic %q and body %q became %+v", event, topic, body, msg)
			}
			again, _ := verify(t, v, verifiers.Change(verifiers.Change(h, "X-Shopify-Event-Id", "new"),
				"X-Shopify-Shop-Domain", "other.myshopify.com"), body)
			if len(again.Message.Aliases) != 1 || again.Message.Aliases[0] != msg.Aliases[0] {
				t.Errorf("with a new ID the alias of %q is new too", body)
			}
		}
	})
}
