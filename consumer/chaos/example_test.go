package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// In a program, orders is the Consumer of a Subscriber, which gets faulty as its Processor. Here a loop delivers one
// message until it is acknowledged.
func ExampleWrap() {
	store := consumertest.NewStore()
	deliveries := 0
	orders, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, _ *consumer.Message) error { return tx.Add("charges") },
	})
	if err != nil {
		panic(err)
	}
	faulty, err := chaos.Wrap(orders, chaos.Config{Seed: 1, Duplicate: 0.5, LoseAck: 0.8})
	if err != nil {
		panic(err)
	}
	for err = errors.New("not delivered yet"); err != nil; deliveries++ {
		err = faulty.Process(context.Background(), &consumer.Message{ID: "order-1"})
	}
	fmt.Println("delivered more than once:", deliveries > 1, "charged:", store.Database().Count("charges"))
	// Output: delivered more than once: true charged: 1
}
