package driver_test

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// The scope of a handler gives its messages IDs that are the same when the handler runs again. A consumer opens it;
// code that calls a handler without a consumer opens it itself.
func ExampleWithScope() {
	for range 2 {
		ctx, end := driver.WithScope(context.Background(), "orders/17")
		msgs := []outbox.Message{{Topic: "charged"}}
		fmt.Println(driver.AssignIDs(ctx, msgs), msgs[0].ID)
		end()
	}
	// Output:
	// <nil> 50576eee-faba-85dd-bb81-59998fb32d7d
	// <nil> 50576eee-faba-85dd-bb81-59998fb32d7d
}
