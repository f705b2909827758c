package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// broker is where orders lie and events go in one run: Kafka, SQS or RabbitMQ, with queues of the run's own.
type broker interface {
	fmt.Stringer // where the orders lie

	// Open connects and makes the queues.
	Open(ctx context.Context) error
	// Produce sends every delivery of p.
	Produce(ctx context.Context, p *plan, progress func(done int)) error
	// Finished returns how many deliveries are finished, as the broker itself knows it; where there are partitions, of each.
	Finished(ctx context.Context) ([]int64, error)
	// Ends is what Finished returns when all is done.
	Ends() []int64
	// Events calls take for each event that was published, those of a customer in their order. It may take them away.
	Events(ctx context.Context, take func(id, customer string, payload []byte)) error
	// Place is what workers have to know.
	Place() place
	// Close removes what this run has made.
	Close(ctx context.Context) error
}

// place is where a worker finds orders and puts events.
type place struct {
	Addresses []string `json:"addresses"` // of a Kafka, or one URL
	Orders    string   `json:"orders"`    // topic or queue
	Events    string   `json:"events"`    // likewise
	Group     string   `json:"group"`     // of consumers, of a Kafka
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

// missing says what of each partition is not finished.
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
