package shopifyhook

import (
	"errors"
	"fmt"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// Endpoint names the subscription that sends to this endpoint, such as "orders-paid". It is part of each event's
	// key. Several subscriptions with the same name share their events. A new name makes all events new. Required.
	Endpoint string

	// Secrets are client secrets of the app. For webhooks that were created in the admin of a shop, it is the secret
	// shown there. Any of them may have made a signature: configure the old and the new secret while you rotate it.
	// Each has 24 bytes or more. Required.
	Secrets []string

	// Topic is the topic of this endpoint, such as "orders/paid". A delivery whose header X-Shopify-Topic names another
	// is refused. Required, unless TrustTopicHeader is set.
	Topic string

	// TrustTopicHeader takes the topic of each event from the header X-Shopify-Topic, for an endpoint with several
	// topics. The header is not signed: somebody who has captured a delivery can send its body once for each other
	// topic, and each of them runs.
	//
	// Defaults to false: Topic is required.
	TrustTopicHeader bool

	// Shop is the domain of the only shop that sends to this endpoint, such as "acme.myshopify.com". A delivery whose
	// header X-Shopify-Shop-Domain names another is refused. Handlers find it in Message.Headers.
	//
	// Defaults to none: all shops that have installed the app.
	Shop string

	// TrustShopHeader gives handlers the header X-Shopify-Shop-Domain in Message.Headers, for an app of several shops.
	// The header is not signed: somebody who captures a delivery and suppresses it can send it under the name of
	// another shop. Where the body names the shop, use that.
	//
	// Defaults to false.
	TrustShopHeader bool
}

// minSecret is less than the length of any client secret of Shopify.
const minSecret = 24

// validate returns one error that names all fields at fault.
func (c Config) validate() error {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("shopifyhook: Config."+format, args...))
	}
	if err := bodymac.CheckEndpoint(c.Endpoint, "name the subscription, such as \"orders-paid\""); err != nil {
		refuse("Endpoint %w", err)
	}
	if len(c.Secrets) == 0 {
		refuse("Secrets is required: copy the app's client secret")
	}
	for i, secret := range c.Secrets {
		if strings.HasPrefix(secret, "shpat_") || strings.HasPrefix(secret, "shpca_") {
			refuse("Secrets[%d] is an access token: copy the app's client secret instead", i)
		} else if err := strict.Secret(secret, minSecret); err != nil {
			refuse("Secrets[%d] %w; copy the app's whole client secret", i, err)
		}
	}
	if err := bodymac.CheckTopic(c.Topic, c.TrustTopicHeader, ":=",
		"name the one topic of this endpoint, such as \"orders/paid\", "+
			"because the header X-Shopify-Topic is not signed; or set TrustTopicHeader"); err != nil {
		refuse("Topic %w", err)
	}
	switch {
	case c.Shop != "" && c.TrustShopHeader:
		refuse("Shop and TrustShopHeader are both set: set one of them")
	case c.Shop != "":
		if err := strict.Token(c.Shop, "/:"); err != nil {
			refuse("Shop %w: want a domain, such as acme.myshopify.com", err)
		}
	}
	return errors.Join(wrong...)
}
