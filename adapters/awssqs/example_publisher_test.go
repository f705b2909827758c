package awssqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// Messages that a transaction enqueued are relayed to a FIFO queue. The server is a fake; a program uses
// sqs.NewFromConfig(cfg) instead.
func ExamplePublisher() {
	ctx := context.Background()
	client := awssqstest.NewServer(awssqstest.Config{})
	_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName:  aws.String("charges.fifo"),
		Attributes: map[string]string{"FifoQueue": "true"},
	})
	if err != nil {
		panic(err)
	}
	publisher, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: client})
	if err != nil {
		panic(err)
	}
	store := outboxtest.NewMemory()
	r, err := relay.New(relay.Config{Queue: store, Publisher: publisher, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	err = store.InTx(ctx, func(tx *outboxtest.Tx) error {
		return store.Enqueue(ctx, tx, outbox.Message{
			ID: "order-42:charged", Topic: "charges.fifo",
			OrderingKey: "customer-7", Payload: []byte(`{"cents":1999}`),
		})
	})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(ctx)
	relayed := make(chan error)
	go func() { relayed <- r.Run(ctx) }()
	for len(client.Stored("charges.fifo")) == 0 {
		<-time.After(time.Millisecond)
	}
	stop()
	if err := <-relayed; err != nil {
		panic(err)
	}
	for _, m := range client.Stored("charges.fifo") {
		id, row, _ := strings.Cut(m.DeduplicationID, "/") // the sequence number and the time of the row follow
		fmt.Println(m.Body, m.GroupID, id, row != "")
	}
	// Output: {"cents":1999} customer-7 order-42:charged true
}
