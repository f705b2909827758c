package shopifyhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/verifiers"
)

// delivered is a request, and the Verifier of the endpoint that it goes to.
type delivered struct {
	change func(*shopifyhook.Config)
	header http.Header
	body   string
}

func TestDeduplication(t *testing.T) {
	const (
		other = `{"id":820982911946154509,"total_price":"20.00"}`
		thin  = `{"id":820982911946154508}`
	)
	h := headers(signature(secret, body), event, topic)
	at := func(endpoint, topic string) func(*shopifyhook.Config) {
		return func(c *shopifyhook.Config) { c.Endpoint, c.Topic = endpoint, topic }
	}
	ran := func(topic, event string) string { return topic + " " + topic + ":" + event }
	for _, test := range []struct {
		name        string
		deliveries  []delivered
		ran, parked []string
	}{
		{"a retry", []delivered{{nil, h, body}, {nil, h, body}}, []string{ran(topic, event)}, nil},
		{
			"the same event of a second subscription, with its own X-Shopify-Webhook-Id",
			[]delivered{{nil, h, body}, {nil, verifiers.Change(h, "X-Shopify-Webhook-Id", "another"), body}},
			[]string{ran(topic, event)},
			nil,
		},
		{
			"case 54: a captured delivery with a new X-Shopify-Webhook-Id",
			[]delivered{{nil, h, body}, {nil, verifiers.Change(h, "X-Shopify-Webhook-Id", "new"), body}},
			[]string{ran(topic, event)},
			nil,
		},
		{
			"case 54: a captured delivery with a new X-Shopify-Event-Id",
			[]delivered{{nil, h, body}, {nil, verifiers.Change(h, "X-Shopify-Event-Id", otherEvent), body}},
			[]string{ran(topic, event)},
			[]string{"known_content " + topic + ":" + otherEvent},
		},
		{
			"case 54: a captured delivery with a new ID and the name of another shop",
			[]delivered{
				{trustShop, h, body},
				{trustShop, verifiers.Change(verifiers.Change(h, "X-Shopify-Event-Id", otherEvent),
					"X-Shopify-Shop-Domain", "evil.myshopify.com"), body},
			},
			[]string{ran(topic, event)},
			[]string{"known_content " + topic + ":" + otherEvent},
		},
		{
			"a captured body under the ID of a delivery that comes later", // kept, not dropped as a duplicate
			[]delivered{{nil, h, body}, {nil, headers(signature(secret, other), event, topic), other}},
			[]string{ran(topic, event)},
			[]string{"mismatch " + topic + ":" + event},
		},
		{
			"a delivery that an attacker sends first under the name of another shop",
			[]delivered{
				{trustShop, verifiers.Change(h, "X-Shopify-Shop-Domain", "evil.myshopify.com"), body},
				{trustShop, h, body},
			},
			[]string{ran(topic, event)},
			[]string{"mismatch " + topic + ":" + event},
		},
		{"E17: one order under three topics, each with an endpoint", []delivered{
			{at("create", "orders/create"), headers(signature(secret, body), event, "orders/create"), body},
			{at("updated", "orders/updated"), headers(signature(secret, body), event, "orders/updated"), body},
			{at("paid", "orders/paid"), headers(signature(secret, body), event, "orders/paid"), body},
		}, []string{ran("orders/create", event), ran("orders/updated", event), ran("orders/paid", event)}, nil},
		{"E17: one order under three topics of one endpoint, which share the event's ID", []delivered{
			{trustTopic, headers(signature(secret, body), event, "orders/create"), body},
			{trustTopic, headers(signature(secret, body), event, "orders/updated"), body},
			{trustTopic, headers(signature(secret, body), event, "orders/paid"), body},
		}, []string{ran("orders/create", event), ran("orders/updated", event), ran("orders/paid", event)}, nil},
		{
			"two events with one body, as include_fields can make them", // a person decides
			[]delivered{
				{nil, headers(signature(secret, thin), event, topic), thin},
				{nil, headers(signature(secret, thin), otherEvent, topic), thin},
			},
			[]string{ran(topic, event)},
			[]string{"known_content " + topic + ":" + otherEvent},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var effects []string
			store := consumertest.NewStore()
			c, err := consumer.New(consumer.Config[*deduptest.Tx]{
				Name: "orders", Store: store, Key: consumer.MessageID, Window: shopifyhook.Horizon + 1,
				Logger: slog.New(slog.DiscardHandler),
				Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
					effects = append(effects, msg.Topic+" "+msg.ID)
					return tx.Add("effect")
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range test.deliveries {
				event, refusal := verify(t, newVerifier(t, d.change), d.header, d.body)
				if refusal != "" {
					t.Fatalf("refused as %q", refusal)
				}
				if err := c.Process(t.Context(), &event.Message); err != nil {
					t.Fatal(err)
				}
			}
			letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
			if err != nil {
				t.Fatal(err)
			}
			var parked []string
			for _, l := range letters {
				parked = append(parked, fmt.Sprint(l.Cause, " ", l.Message.ID))
			}
			if diff := cmp.Diff(test.ran, effects) + cmp.Diff(test.parked, parked); diff != "" {
				t.Errorf("handlers that ran, dead letters (-want +got)\n%s", diff)
			}
		})
	}
}
