package main

import (
	"context"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// eventID returns the ID that outbox derives for the event of an order: whoever receives it twice can tell by it. By hand
// people take the order's own.
func eventID(topic, broken string) func(order string) string {
	if broken != "" {
		return func(order string) string { return order }
	}
	return func(order string) string {
		seed := dedup.Key{Consumer: "billing", ID: order}.Hash()
		ctx, end := outbox.WithScope(context.Background(), string(seed[:]))
		defer end()
		event := []outbox.Message{{Topic: topic}}
		if err := outbox.AssignIDs(ctx, event); err != nil {
			panic(err) // the scope is open, and this its only goroutine
		}
		return event[0].ID
	}
}
