package outbox_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// A relay runs beside whatever else the program does, until its context ends. Here the outbox and the broker are in
// memory; in a program they are a store, such as pgxstore's, and a broker's publisher, such as kafka's.
func ExampleRelay_Run() {
	memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
	published := make(chan int)
	relay, err := outbox.NewRelay(outbox.Config{
		Queue:     memory,
		Publisher: broker,
		Trace: &outbox.Trace{Published: func(_ context.Context, e outbox.Event) { // for metrics
			published <- e.Count
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()

	// Elsewhere: the message is part of the transaction that charges the customer.
	err = memory.InTx(ctx, func(tx *outboxtest.Tx) error {
		return memory.Enqueue(ctx, tx, outbox.Message{ID: "charge-17", Topic: "charged", Key: "customer-4711", Payload: []byte("12.50")})
	})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(<-published, broker.Confirmed())
	stop()
	fmt.Println(<-ended)
	// Output:
	// 1 [charge-17]
	// <nil>
}

// NewRelay refuses what cannot work, by the name of the field.
func ExampleNewRelay() {
	_, err := outbox.NewRelay(outbox.Config{
		Queue:     outboxtest.NewMemory(),
		Publisher: new(outboxtest.FakePublisher),
		LeaseTTL:  30 * time.Second,
		Margin:    20 * time.Second,
	})
	fmt.Println(err)
	// Output: outbox: Config.Margin is 20s: want more than 0, and at most half of LeaseTTL 30s, which leaves no time to publish
}

// A cron job, or a test, publishes what is due and ends.
func ExampleRelay_RunOnce() {
	ctx := context.Background()
	memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
	err := memory.InTx(ctx, func(tx *outboxtest.Tx) error {
		return memory.Enqueue(ctx, tx,
			outbox.Message{ID: "1", Topic: "charged", Key: "customer-4711"},
			outbox.Message{ID: "2", Topic: "charged", Key: "customer-4711"})
	})
	if err != nil {
		log.Fatal(err)
	}
	relay, err := outbox.NewRelay(outbox.Config{Queue: memory, Publisher: broker})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(relay.RunOnce(ctx))
	fmt.Println(broker.Confirmed())
	// Output:
	// 2 <nil>
	// [1 2]
}

// The scope of a handler gives its messages IDs that are the same when it is executed again. A consumer opens it; whoever
// calls a handler without one does so here.
func ExampleWithScope() {
	for range 2 {
		ctx, end := outbox.WithScope(context.Background(), "orders/17")
		msgs := []outbox.Message{{Topic: "charged"}}
		fmt.Println(outbox.AssignIDs(ctx, msgs), msgs[0].ID)
		end()
	}
	// Output:
	// <nil> 50576eee-faba-85dd-bb81-59998fb32d7d
	// <nil> 50576eee-faba-85dd-bb81-59998fb32d7d
}
