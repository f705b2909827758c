package main

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// connectKafka returns a member of a consumer group and a publisher.
func (w workerConfig) connectKafka(billing consumer.Processor) (*ends, error) {
	client, err := sarama.NewClient(w.Addresses, w.Sarama)
	if err != nil {
		return nil, err
	}
	orders, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: w.Group, Topics: []string{w.Orders}, Processor: billing, MaxBatch: 100,
		Trace: w.SourceTrace,
	})
	if err != nil {
		return nil, err
	}
	events, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		return nil, err
	}
	return &ends{orders, events, func() { _, _ = events.Close(), client.Close() }}, nil
}

// sarama returns kafka.NewConfig with short group timeouts.
func (s settings) sarama() *sarama.Config {
	cfg := kafka.NewConfig()
	cfg.ClientID = s.Name
	cfg.Consumer.Group.Session.Timeout = sessionTimeout
	cfg.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	cfg.Consumer.Offsets.AutoCommit.Interval = 250 * time.Millisecond
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond // releasing a partition waits for its fetch
	if s.Static {
		cfg.Consumer.Group.InstanceId = s.Name // restarts as the same member, with the same partitions
	}
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if s.Rebalance == "cooperative" {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	return cfg
}
