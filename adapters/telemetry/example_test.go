package telemetry_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

func Example() {
	// give it the MeterProvider of your SDK
	tel, err := telemetry.New(telemetry.Config{MeterProvider: noop.NewMeterProvider(), System: "kafka"})
	if err != nil {
		log.Fatal(err)
	}
	billing, err := consumer.New(consumer.Config[tx]{
		Name: "billing", Store: consumertest.NewStore(), Key: consumer.MessageID,
		Handle: func(context.Context, tx, *consumer.Message) error { return nil },
		Trace:  tel.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{"orders"}}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(billing.Process(context.Background(), &consumer.Message{ID: "order-1", Topic: "orders"}))
	// Output: <nil>
}
