package awssqs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// What is enqueued in a transaction is relayed to a FIFO queue. The server is the fake; a program has sqs.NewFromConfig(cfg) there.
func ExamplePublisher() {
	ctx := context.Background()
	client := awssqstest.NewServer(awssqstest.Config{})
	_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("charges.fifo"), Attributes: map[string]string{"FifoQueue": "true"}})
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
		return store.Enqueue(ctx, tx, outbox.Message{ID: "order-42:charged", Topic: "charges.fifo", Key: "customer-7", Payload: []byte(`{"cents":1999}`)})
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
		fmt.Println(m.Body, m.GroupID, m.DeduplicationID)
	}
	// Output: {"cents":1999} customer-7 order-42:charged
}

// A function of AWS Lambda. The message comes twice, and is charged once; the answer names what failed, which is nothing.
func ExampleLambdaHandler() {
	store := consumertest.NewStore() // pgxstore.New, sqlstore.New
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order"), Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, _ *consumer.Message) error { return tx.Add("charge") },
	})
	if err != nil {
		panic(err)
	}
	handler, err := awssqs.NewLambdaHandler(awssqs.LambdaConfig{Processor: billing})
	if err != nil {
		panic(err)
	}
	// lambda.Start(handler.Handle), in a function whose event source mapping has ReportBatchItemFailures, does this:
	for range 2 {
		var event awssqs.LambdaEvent
		err := json.Unmarshal([]byte(`{"Records": [{"messageId": "059f36b4", "body": "{\"order\": \"A-42\"}", "eventSource": "aws:sqs",
			"eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:orders", "attributes": {"ApproximateReceiveCount": "1"}}]}`), &event)
		if err != nil {
			panic(err)
		}
		response, err := handler.Handle(context.Background(), event)
		if err != nil {
			panic(err)
		}
		answer, _ := json.Marshal(response)
		fmt.Println(string(answer))
	}
	fmt.Println(store.Database().Count("charge"), "charge")
	// Output:
	// {"batchItemFailures":[]}
	// {"batchItemFailures":[]}
	// 1 charge
}
