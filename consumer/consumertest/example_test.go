package consumertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Order is what the handler under test takes.
type Order struct {
	ID string `json:"order_id"`
}

func chargeOrder(_ context.Context, tx *deduptest.Tx, _ Order) error { return tx.Add("charges") }

// In a test of your own, Store is a pgxstore.Store or a sqlstore.Store, and Effects asks the table that the handler
// writes.
func ExampleTestHandler() {
	_ = func(t *testing.T) { // func TestCharge
		store := consumertest.NewStore()
		consumertest.TestHandler(t, consumertest.HandlerTest[*deduptest.Tx]{
			Store: store,
			New: func(store dedup.Store[*deduptest.Tx]) (*consumer.Consumer[*deduptest.Tx], error) {
				return consumer.New(consumer.Config[*deduptest.Tx]{
					Name: "billing", Store: store, Key: consumer.JSONKey("order_id"),
					Handle: consumer.JSON(chargeOrder),
				})
			},
			Message: func(n int) *consumer.Message {
				return &consumer.Message{Payload: fmt.Appendf(nil, `{"order_id": "test-%d"}`, n)}
			},
			Effects: func(context.Context) (int, error) { return store.Database().Count("charges"), nil },
		})
	}
}

func ExampleStore() {
	store := consumertest.NewStore()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(chargeOrder),
	})
	if err != nil {
		panic(err)
	}
	for _, payload := range []string{`{"order_id": "A"}`, `{"order_id": "A"}`, `{"order": "B"}`} {
		_ = c.Process(context.Background(), &consumer.Message{Payload: []byte(payload)})
	}
	letters, _ := c.DeadLetters(context.Background(), consumer.DeadLetterFilter{})
	fmt.Println("charged", store.Database().Count("charges"), "parked", len(letters), letters[0].Cause)
	// Output: charged 1 parked 1 no_key
}
