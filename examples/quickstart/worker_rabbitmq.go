package main

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
)

// connectRabbitMQ returns a subscriber of the queue of orders and a publisher.
func (w workerConfig) connectRabbitMQ(billing consumer.Processor) (*ends, error) {
	dial := rabbitmq.Dial(w.Addresses[0], amqp.Config{})
	orders, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial: dial, Queue: w.Orders, Processor: billing, Concurrency: w.Concurrency, MaxBatch: w.MaxBatch,
		Trace: w.SourceTrace,
	})
	if err != nil {
		return nil, err
	}
	events, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: dial})
	if err != nil {
		return nil, err
	}
	return &ends{orders, events, func() { _ = events.Close() }}, nil
}
