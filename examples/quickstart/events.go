package main

import (
	"context"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// billingKey is the key of an order's claim.
func billingKey(order string) dedup.Key { return dedup.Key{Consumer: "billing", ID: order} }

// eventID returns the ID that outbox assigns to the event of an order. Receivers use it to recognize a repeated event.
func eventID(topic string) func(order string) string {
	return func(order string) string {
		seed := billingKey(order).Hash()
		ctx, end := driver.WithScope(context.Background(), string(seed[:])+"/"+order)
		defer end()
		event := []outbox.Message{{Topic: topic}}
		if err := driver.AssignIDs(ctx, event); err != nil {
			panic(err) // cannot fail: the scope is open and only this goroutine uses it
		}
		return event[0].ID
	}
}
