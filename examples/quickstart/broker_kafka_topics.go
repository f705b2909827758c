package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// create makes a topic whose name only this run uses: if it exists, an earlier try made it and its answer came too
// late. create also retries while Kafka thinks that its only broker is gone, because it paused.
func (b *kafkaBroker) create(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := b.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
		if errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return nil
		}
		if !errors.Is(err, sarama.ErrRequestTimedOut) && !errors.Is(err, sarama.ErrInvalidReplicationFactor) {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// awaitLeaders waits until every partition's leader answers: metadata names a leader before it is ready.
func (b *kafkaBroker) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := b.client.RefreshMetadata(b.topics()...)
		for _, topic := range b.topics() {
			if err == nil {
				_, err = b.endsOf(topic)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func (b *kafkaBroker) topics() []string { return []string{b.topic, b.events} }
