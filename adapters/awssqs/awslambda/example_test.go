package awslambda_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/txonce/txonce/adapters/awssqs/awslambda"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A function of AWS Lambda. The message is delivered twice and charged once. The answer names the messages that failed:
// none.
func ExampleHandler() {
	store := consumertest.NewStore() // pgxstore.New, sqlstore.New
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order"), Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, _ *consumer.Message) error { return tx.Add("charge") },
	})
	if err != nil {
		panic(err)
	}
	handler, err := awslambda.New(awslambda.Config{Processor: billing})
	if err != nil {
		panic(err)
	}
	// lambda.Start(handler.Handle), in a function whose event source mapping has ReportBatchItemFailures, does this:
	for range 2 {
		var event awslambda.Event
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
