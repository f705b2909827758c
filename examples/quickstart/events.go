package main

import (
	"context"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// eventID returns the ID that outbox assigns to the event of an order. Receivers use it to recognize a repeated event. The
// workers of -broken use the order's own ID.
func eventID(topic, broken string) func(order string) string {
	if broken != "" {
		return func(order string) string { return order }
	}
	return func(order string) string {
		seed := dedup.Key{Consumer: "billing", ID: order}.Hash()
		ctx, end := outbox.WithScope(context.Background(), string(seed[:])+"/"+order)
		defer end()
		event := []outbox.Message{{Topic: topic}}
		if err := outbox.AssignIDs(ctx, event); err != nil {
			panic(err) // cannot fail: the scope is open and only this goroutine uses it
		}
		return event[0].ID
	}
}
