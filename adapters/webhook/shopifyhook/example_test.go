package shopifyhook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
)

// Two subscriptions deliver one event. It has one key.
func ExampleVerifier() {
	const clientSecret = "shpss_0123456789abcdef0123456789abcdef" // from the app's settings
	verifier, err := shopifyhook.New(shopifyhook.Config{
		Endpoint: "orders-paid", Topic: "orders/paid",
		Secrets: []string{clientSecret},
	})
	if err != nil {
		panic(err)
	}
	// The receiver of package webhook makes the Delivery of an HTTP request. A test signs it.
	body := []byte(`{"id":820982911946154508,"total_price":"19.00"}`)
	for _, delivery := range []string{"delivery-1", "delivery-2"} {
		header := shopifyhook.Sign(clientSecret, "98880550-7158-44d4-b7cd-2c97c8a091b5", "orders/paid",
			"acme.myshopify.com", body)
		header.Set("X-Shopify-Webhook-Id", delivery)
		events, err := verifier.Verify(context.Background(),
			&webhook.Delivery{Header: header, Body: body, Time: time.Now()})
		if err != nil {
			panic(err)
		}
		fmt.Println(events[0].Message.Tenant, events[0].Message.ID)
	}
	// Output:
	// shopify/orders-paid orders/paid:98880550-7158-44d4-b7cd-2c97c8a091b5
	// shopify/orders-paid orders/paid:98880550-7158-44d4-b7cd-2c97c8a091b5
}
