package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// broker is Kafka, SQS or RabbitMQ with topics or queues for one run: one for orders and one for events.
type broker interface {
	fmt.Stringer // names the topic or queue of orders

	// Open connects and makes the queues.
	Open(ctx context.Context) error
	// Produce sends every delivery of p.
	Produce(ctx context.Context, p *plan, progress func(done int)) error
	// Finished returns the number of finished deliveries according to the broker, per partition if there are
	// partitions.
	Finished(ctx context.Context) ([]int64, error)
	// Ends is what Finished returns once everything is finished.
	Ends() []int64
	// Events calls take for each published event; the events of one customer are in order. It may remove them from the
	// broker.
	Events(ctx context.Context, take func(id, customer string, payload []byte)) error
	// Place is what workers need to connect.
	Place() place
	// Close removes what Open made.
	Close(ctx context.Context) error
}

// place tells a worker where orders and events are.
type place struct {
	Addresses []string `json:"addresses"` // Kafka's brokers, or one URL
	Orders    string   `json:"orders"`    // topic or queue
	Events    string   `json:"events"`    // topic or queue
	Group     string   `json:"group"`     // consumer group; Kafka only
}

// openBroker connects to the broker of o.
func openBroker(ctx context.Context, o options, name string) (b broker, err error) {
	switch o.broker {
	case "sqs":
		b = newSQS(o.sqs, name)
	case "rabbitmq":
		b = newRabbitMQ(o.rabbitmq, name)
	default:
		b = newKafka(o.kafka, name)
	}
	if err := b.Open(ctx); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// missing describes what is unfinished in each partition.
func missing(ends, finished []int64) string {
	var all strings.Builder
	for i, end := range ends {
		at := int64(0)
		if finished != nil {
			at = finished[i]
		}
		if at < end {
			fmt.Fprintf(&all, "  partition %d: %d of %d deliveries are finished\n", i, at, end)
		}
	}
	return all.String()
}
