package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
)

// sessionTimeout is how long a group waits for a silent member. A Kafka allows no less than 6 s by default.
const sessionTimeout = 6 * time.Second

// kafkaBroker is a Kafka, real or in this process, with topics and a consumer group for one run.
type kafkaBroker struct {
	addresses []string
	topic     string // of orders
	events    string // topic
	group     string
	fake      *kfake.Cluster // nil: a real Kafka
	client    sarama.Client
	admin     sarama.ClusterAdmin
	ends      []int64 // per partition, once everything is produced
}

func newKafka(addresses []string, name string) *kafkaBroker {
	return &kafkaBroker{addresses: addresses, topic: name, events: name + "_events", group: name}
}

// Open connects to the Kafka at the addresses, or starts one in this process if there are none, and creates the topics.
func (b *kafkaBroker) Open(ctx context.Context) (err error) {
	if len(b.addresses) == 0 {
		if b.fake, err = kfake.NewCluster(kfake.NumBrokers(1)); err != nil {
			return fmt.Errorf("start a Kafka in this process: %w", err)
		}
		b.addresses = b.fake.ListenAddrs()
	}
	cfg := kafka.NewConfig()
	cfg.ClientID = "quickstart"
	cfg.Net.DialTimeout = 5 * time.Second
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Producer.Return.Successes = true
	cfg.Net.MaxOpenRequests = 1 // Idempotent requires this
	cfg.Producer.Compression = sarama.CompressionSnappy
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Flush.Frequency = 10 * time.Millisecond
	cfg.ChannelBufferSize = 4096
	cfg.Consumer.MaxWaitTime = 50 * time.Millisecond
	cfg.Admin.Timeout = 20 * time.Second // a Kafka may pause for longer than the default of 3 s
	if b.client, err = sarama.NewClient(b.addresses, cfg); err != nil {
		return fmt.Errorf("connect to Kafka at %q: %w", b.addresses, err)
	}
	if b.admin, err = sarama.NewClusterAdminFromClient(b.client); err != nil {
		return fmt.Errorf("connect to Kafka's controller: %w", err)
	}
	for _, topic := range b.topics() {
		if err := b.create(ctx, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return b.awaitLeaders(ctx)
}

// Produce sends every delivery of p and records the end of each partition.
func (b *kafkaBroker) Produce(ctx context.Context, p *plan, progress func(done int)) error {
	producer, err := sarama.NewAsyncProducerFromClient(b.client)
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- await(producer, len(p.deliveries)) }()
	start := time.Now()
	for i, d := range p.deliveries {
		if i%10_000 == 9999 {
			progress(i + 1)
		}
		select {
		case producer.Input() <- b.record(p, d, start):
			continue
		case err = <-sent:
		case <-ctx.Done():
			err = ctx.Err()
		}
		producer.AsyncClose()
		return fmt.Errorf("produce: %w", err)
	}
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = ctx.Err()
	}
	producer.AsyncClose() // not earlier: it would drop messages that it is about to retry
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	b.ends, err = b.endsOf(b.topic)
	return err
}

// endsOf returns the end offset of each partition of a topic.
func (b *kafkaBroker) endsOf(topic string) (ends []int64, err error) {
	ends = make([]int64, partitions)
	for i := range ends {
		if ends[i], err = b.client.GetOffset(topic, int32(i), sarama.OffsetNewest); err != nil {
			return nil, fmt.Errorf("read the end of partition %d of %s: %w", i, topic, err)
		}
	}
	return ends, nil
}

// await waits until n messages are confirmed, and returns the first error.
func await(producer sarama.AsyncProducer, n int) error {
	for range n {
		select {
		case <-producer.Successes():
		case err := <-producer.Errors():
			return err
		}
	}
	return nil
}

// record is one delivery. All copies of an order have the order's own time, like a producer that sends the same record
// again.
func (b *kafkaBroker) record(p *plan, d delivery, start time.Time) *sarama.ProducerMessage {
	o := p.Order(int(d.message))
	return &sarama.ProducerMessage{
		Topic:     b.topic,
		Partition: int32(d.partition),
		Key:       sarama.StringEncoder(o.ID),
		Value:     sarama.ByteEncoder(o.JSON()),
		Timestamp: p.PlacedAt(int(d.message), start),
	}
}

// Finished returns for each partition the offset that the group has committed.
func (b *kafkaBroker) Finished(context.Context) ([]int64, error) {
	var all [partitions]int32
	for i := range all {
		all[i] = int32(i)
	}
	response, err := b.admin.ListConsumerGroupOffsets(b.group, map[string][]int32{b.topic: all[:]})
	if err != nil {
		return nil, fmt.Errorf("read the group's offsets: %w", err)
	}
	committed := make([]int64, partitions)
	for i := range committed {
		block := response.GetBlock(b.topic, int32(i))
		if block == nil {
			return nil, fmt.Errorf("read the group's offsets: no answer for partition %d: %w", i, response.Err)
		}
		if block.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("read the group's offset of partition %d: %w", i, block.Err)
		}
		committed[i] = max(0, block.Offset) // -1: nothing is committed yet
	}
	return committed, nil
}

// Ends implements broker.
func (b *kafkaBroker) Ends() []int64 { return b.ends }

// Place implements broker.
func (b *kafkaBroker) Place() place {
	return place{Addresses: b.addresses, Orders: b.topic, Events: b.events, Group: b.group}
}

// String implements broker.
func (b *kafkaBroker) String() string {
	return fmt.Sprintf("%d partitions of topic %s", partitions, b.topic)
}

// Close removes the topics and the group. Static members never leave on their own, so it removes them first.
func (b *kafkaBroker) Close(ctx context.Context) error {
	var errs []error
	if b.admin != nil && b.fake == nil {
		errs = append(errs, b.removeGroup(ctx))
		for _, topic := range b.topics() {
			if err := b.admin.DeleteTopic(topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				errs = append(errs, fmt.Errorf("delete topic %s: %w", topic, err))
			}
		}
	}
	if b.client != nil {
		errs = append(errs, b.client.Close())
	}
	if b.fake != nil {
		b.fake.Close()
	}
	return errors.Join(errs...)
}

func (b *kafkaBroker) removeGroup(ctx context.Context) (err error) {
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		err = b.removeMembers()
		if err == nil {
			err = b.admin.DeleteConsumerGroup(b.group)
		}
		if err == nil || errors.Is(err, sarama.ErrGroupIDNotFound) {
			return nil
		}
		select {
		case <-again.C: // Kafka may not have noticed yet that a member was killed
		case <-ctx.Done():
			return fmt.Errorf("delete group %s: %w", b.group, err)
		}
	}
}

func (b *kafkaBroker) removeMembers() error {
	groups, err := b.admin.DescribeConsumerGroups([]string{b.group})
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, m := range g.Members {
			if m.GroupInstanceId == nil {
				continue
			}
			if _, err := b.admin.RemoveMemberFromConsumerGroup(b.group, []string{*m.GroupInstanceId}); err != nil {
				return err
			}
		}
	}
	return nil
}
