package main

import (
	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/consumer"
)

// connectSQS returns a subscriber of the queue of orders and a publisher.
func (w workerConfig) connectSQS(billing consumer.Processor) (*ends, error) {
	client := sqsClient(w.Addresses[0])
	orders, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{
		Client: client, Queue: w.Orders, Processor: billing, Concurrency: w.Concurrency, MaxBatch: w.MaxBatch,
		Trace: w.SourceTrace,
	})
	if err != nil {
		return nil, err
	}
	events, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: client})
	if err != nil {
		return nil, err
	}
	return &ends{orders, events, func() {}}, nil
}
