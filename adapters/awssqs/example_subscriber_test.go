package awssqs_test

import (
	"context"
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
)

// One event that was sent twice is handled once. The server is the fake and the store is in memory; a program has
// sqs.NewFromConfig(cfg) and a pgxstore or sqlstore there, and ends Run with a signal.
func ExampleSubscriber() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := awssqstest.NewServer(awssqstest.Config{})
	created, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("charges")})
	if err != nil {
		panic(err)
	}
	for range 2 {
		if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: created.QueueUrl, MessageBody: aws.String("order-42")}); err != nil {
			panic(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	db := deduptest.NewDatabase()
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name:  "billing",
		Store: consumertest.NewStoreOn(db),
		Key:   func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
		Handle: func(_ context.Context, tx *deduptest.Tx, m *consumer.Message) error {
			return tx.Add(string(m.Payload)) // the effect, in the transaction of the claim
		},
		Logger: quiet,
	})
	if err != nil {
		panic(err)
	}
	subscriber, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{
		Client: client, Queue: "charges",
		Processor: billing, Logger: quiet,
	})
	if err != nil {
		panic(err)
	}

	ended := make(chan error)
	go func() { ended <- subscriber.Run(ctx) }()
	for len(client.Stored("charges")) > 0 {
		<-time.After(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
	fmt.Println("effects:", db.Count("order-42"))
	// Output: effects: 1
}
