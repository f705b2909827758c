package relay_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A relay runs beside whatever else the program does, until its context ends. Here the outbox and the broker are in
// memory; in a program they are a store, such as pgxstore's, and a broker's publisher, such as kafka's.
func ExampleRelay_Run() {
	memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
	published := make(chan int)
	r, err := relay.New(relay.Config{
		Queue:     memory,
		Publisher: broker,
		Trace: &relay.Trace{Settled: func(_ context.Context, messages []relay.Settlement) { // for metrics
			published <- len(messages)
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	// Elsewhere: the message is part of the transaction that charges the customer.
	err = memory.InTx(ctx, func(tx *outboxtest.Tx) error {
		return memory.Enqueue(ctx, tx, outbox.Message{
			ID: "charge-17", Topic: "charged", OrderingKey: "customer-4711",
			Payload: []byte("12.50"),
		})
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

// New refuses a Config that cannot work, and names the field.
func ExampleNew() {
	_, err := relay.New(relay.Config{
		Queue:     outboxtest.NewMemory(),
		Publisher: new(outboxtest.FakePublisher),
		LeaseTTL:  30 * time.Second,
		Margin:    20 * time.Second,
	})
	fmt.Println(err)
	// Output: relay: Config.Margin is 20s: want more than 0, and at most half of LeaseTTL 30s, which leaves no time to publish
}

// A cron job, or a test, publishes the due messages and ends.
func ExampleRelay_RunOnce() {
	ctx := context.Background()
	memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
	err := memory.InTx(ctx, func(tx *outboxtest.Tx) error {
		return memory.Enqueue(ctx, tx,
			outbox.Message{ID: "1", Topic: "charged", OrderingKey: "customer-4711"},
			outbox.Message{ID: "2", Topic: "charged", OrderingKey: "customer-4711"})
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := relay.New(relay.Config{Queue: memory, Publisher: broker})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.RunOnce(ctx))
	fmt.Println(broker.Confirmed())
	// Output:
	// 2 <nil>
	// [1 2]
}
