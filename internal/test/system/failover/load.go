//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// load sends messages at a steady pace until ctx ends. Their IDs are counted from 1.
type load struct {
	client     sarama.Client
	topic      string
	partitions int
	sent       atomic.Int64 // confirmed by the brokers
}

func openLoad(ctx context.Context, o options, topic string) (*load, error) {
	cfg := sarama.NewConfig()
	cfg.ClientID = "failover"
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	client, err := sarama.NewClient(o.kafka, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %q: %w", o.kafka, err)
	}
	l := &load{client: client, topic: topic, partitions: o.partitions}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err == nil {
		err = admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: int32(o.partitions), ReplicationFactor: 1, //nolint:gosec // a small number
			ConfigEntries: map[string]*string{"retention.ms": new("86400000"), "segment.ms": new("86400000")},
		}, false)
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("create topic %s: %w", topic, err)
	}
	for ctx.Err() == nil {
		if err = client.RefreshMetadata(topic); err == nil {
			if _, err = client.Leader(topic, int32(o.partitions-1)); err == nil { //nolint:gosec // a small number
				return l, nil
			}
		}
		wait(ctx, 50*time.Millisecond)
	}
	client.Close()
	return nil, errors.Join(err, ctx.Err())
}

func (l *load) Close() error {
	admin, err := sarama.NewClusterAdminFromClient(l.client)
	if err == nil {
		err = admin.DeleteTopic(l.topic)
	}
	return errors.Join(err, l.client.Close())
}

// run sends rate messages per second, 20 at a time, and a killer after each apart of them.
func (l *load) run(ctx context.Context, rate, killers, apart int) error {
	const each = 20
	producer, err := sarama.NewSyncProducerFromClient(l.client)
	if err != nil {
		return err
	}
	defer producer.Close()
	ticker := time.NewTicker(time.Second * each / time.Duration(rate))
	defer ticker.Stop()
	for n := 0; ; n += each {
		var messages []*sarama.ProducerMessage
		for i := n + 1; i <= n+each; i++ {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: l.topic, Partition: int32(i % l.partitions), Value: sarama.StringEncoder(messageID(i)), //nolint:gosec // a small number
			})
		}
		if killers > 0 && n > 0 && n%apart < each { // early, because the load may end after a second
			killers--
			messages = slices.Insert(messages, each/2, &sarama.ProducerMessage{
				Topic: l.topic, Partition: int32(killers % l.partitions), //nolint:gosec // a small number
				Value: sarama.StringEncoder(fmt.Sprint(killer, killers)),
			})
		}
		if err := producer.SendMessages(messages); err != nil {
			return fmt.Errorf("send messages: %w", err)
		}
		l.sent.Store(int64(n + each))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// wait returns when d is over or ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
