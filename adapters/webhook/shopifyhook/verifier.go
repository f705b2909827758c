package shopifyhook

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Horizon is how long the keys of events must be remembered. Shopify itself delivers again for four hours at most, but
// it signs no time: a captured delivery is accepted until the secret is changed, and runs again after its keys were
// forgotten.
const Horizon = 400 * 24 * time.Hour

// ShopHeader is the name of the shop's domain in Message.Headers.
const ShopHeader = "X-Shopify-Shop-Domain"

const (
	source   = "shopify"
	deadline = 5 * time.Second

	// maxBody: Shopify documents no limit. A product with all of its 2,048 variants has several MiB.
	maxBody = 16 << 20

	signatureHeader = "X-Shopify-Hmac-Sha256"
	eventHeader     = "X-Shopify-Event-Id"
	topicHeader     = "X-Shopify-Topic"
)

// Verifier verifies the deliveries to one endpoint. It is a webhook.Verifier, and safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys [][]byte
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, keys: bodymac.Keys(cfg.Secrets)}, nil
}

// Source describes Shopify.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{Name: source, Horizon: Horizon, Deadline: deadline, MaxBody: maxBody}
}

// Verify returns the one event of d.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if err := v.authenticate(d); err != nil {
		return nil, err
	}
	id, err := bodymac.Token(d.Header, eventHeader, "=")
	if err != nil {
		return nil, err
	}
	topic, err := bodymac.Token(d.Header, topicHeader, ":=")
	if err != nil {
		return nil, err
	}
	if !v.cfg.TrustTopicHeader && topic != v.cfg.Topic {
		return nil, webhook.Refuse(webhook.WrongApp,
			"the topic is %q, and Config.Topic is %q: send each topic to an endpoint of its own", topic, v.cfg.Topic)
	}
	shop, err := v.shop(d.Header)
	if err != nil {
		return nil, err
	}
	// The ID has a colon and the topic has none, so different pairs make different IDs. Neither has "=", so no ID is an
	// alias.
	msg := bodymac.Message(source, v.cfg.Endpoint, topic+":"+id, topic, d.Body, " "+shop)
	if shop != "" {
		msg.Headers = map[string]string{ShopHeader: shop}
	}
	return []webhook.Event{{Message: msg}}, nil
}

func (v *Verifier) authenticate(d *webhook.Delivery) error {
	signature, err := strict.Header(d.Header, signatureHeader)
	if err != nil {
		return webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	return bodymac.Authenticate(v.keys, signature, func(key []byte) string { return sign(key, d.Body) },
		"the app's client secret")
}

// shop returns the shop that handlers may know.
func (v *Verifier) shop(h http.Header) (string, error) {
	if v.cfg.Shop == "" && !v.cfg.TrustShopHeader {
		return "", nil
	}
	shop, err := bodymac.Token(h, ShopHeader, "/:")
	if err != nil {
		return "", err
	}
	if v.cfg.Shop != "" && shop != v.cfg.Shop {
		return "", webhook.Refuse(webhook.WrongApp, "the shop is %q, and Config.Shop is %q", shop, v.cfg.Shop)
	}
	return shop, nil
}

func sign(secret, body []byte) string {
	return base64.StdEncoding.EncodeToString(strict.MAC(sha256.New, secret, body))
}

// Sign returns the headers that Shopify would add to body, for tests.
func Sign(secret, eventID, topic, shop string, body []byte) http.Header {
	h := http.Header{}
	h.Set(signatureHeader, sign([]byte(secret), body))
	h.Set(eventHeader, eventID)
	h.Set(topicHeader, topic)
	h.Set(ShopHeader, shop)
	return h
}
