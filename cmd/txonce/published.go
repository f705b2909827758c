package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
)

// publishedTopic is an audit.Topic on Kafka.
type publishedTopic struct {
	client   sarama.Client
	consumer sarama.Consumer
	topic    string
	keeps    time.Duration      // how long a partition keeps messages at least; 0: unknown
	reading  []*publishedSource // those that are open, or were
}

func publishedKafka(_ context.Context, address, topic string) (audit.Topic, func(), error) {
	client, err := kafkaClient(address)
	if err != nil {
		return nil, nil, err
	}
	t := &publishedTopic{client: client, topic: topic}
	if err := t.settings(); err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("--kafka: topic %s: %w", topic, err)
	}
	if t.consumer, err = sarama.NewConsumerFromClient(client); err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("--kafka: %w", err)
	}
	return t, t.close, nil
}

func (t *publishedTopic) close() {
	for _, s := range t.reading {
		s.close()
	}
	_ = t.consumer.Close()
	_ = t.client.Close()
}

// settings reads how the topic deletes messages.
func (t *publishedTopic) settings() error {
	if err := t.client.RefreshMetadata(t.topic); err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdminFromClient(t.client) // not closed: that would close the client
	if err != nil {
		return err
	}
	found, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: t.topic,
		ConfigNames: []string{"cleanup.policy", "retention.ms", "retention.bytes"},
	}}, sarama.DescribeConfigsOptions{})
	switch {
	case err != nil:
	case len(found) != 1:
		err = fmt.Errorf("the broker answered for %d topics", len(found))
	case found[0].ErrorCode != sarama.ErrNoError:
		err = found[0].ErrorCode
	}
	if err != nil {
		return fmt.Errorf("its settings could not be read: %w; grant this user DescribeConfigs on it", err)
	}
	set := map[string]string{}
	for _, e := range found[0].Configs {
		set[e.Name] = e.Value
	}
	if policy := set["cleanup.policy"]; strings.Contains(policy, "compact") {
		return fmt.Errorf("cleanup.policy is %s: Kafka deletes messages of a key when a later one comes, so a missing message proves nothing", policy)
	}
	if ms, err := strconv.ParseInt(set["retention.ms"], 10, 64); err == nil && ms > 0 &&
		set["retention.bytes"] == "-1" {
		t.keeps = time.Duration(min(ms, int64(1<<62/time.Millisecond))) * time.Millisecond
	}
	return nil
}

// offsets returns the first offset of a partition and the one behind the last.
func (t *publishedTopic) offsets(partition int32) (first, end int64, err error) {
	if first, err = t.client.GetOffset(t.topic, partition, sarama.OffsetOldest); err == nil {
		end, err = t.client.GetOffset(t.topic, partition, sarama.OffsetNewest)
	}
	return first, end, t.failed(partition, err)
}

func (t *publishedTopic) failed(partition int32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--kafka: topic %s, partition %d: %w", t.topic, partition, err)
}

// Read implements audit.Topic.
func (t *publishedTopic) Read(_ context.Context, since, until time.Time) (audit.Source, error) {
	partitions, err := t.client.Partitions(t.topic)
	if err != nil {
		return nil, fmt.Errorf("--kafka: topic %s: %w", t.topic, err)
	}
	s := &publishedSource{topic: t}
	t.reading = append(t.reading, s)
	for _, p := range partitions {
		first, end, err := t.offsets(p)
		if err != nil {
			return nil, err
		}
		for _, bound := range []struct {
			at   time.Time
			move func(offset int64)
		}{
			{since, func(offset int64) { first = max(first, offset) }},
			{until, func(offset int64) { end = min(end, offset) }},
		} {
			if bound.at.IsZero() {
				continue
			}
			// of the first message of that time or a later one
			offset, err := t.client.GetOffset(t.topic, p, max(bound.at.UnixMilli(), 0))
			if err != nil {
				return nil, t.failed(p, err)
			}
			if offset < 0 { // there is none
				offset = end
			}
			bound.move(offset)
		}
		if first < end {
			s.spans = append(s.spans, span{p, first, end})
		}
	}
	return s, nil
}

// Kept implements audit.Topic. A message that was deleted came before the first one that is left in its partition.
func (t *publishedTopic) Kept(ctx context.Context) (latest time.Time, err error) {
	partitions, err := t.client.Partitions(t.topic)
	if err != nil {
		return latest, fmt.Errorf("--kafka: topic %s: %w", t.topic, err)
	}
	for _, p := range partitions {
		first, end, err := t.offsets(p)
		if err != nil {
			return latest, err
		}
		if first == 0 { // nothing was deleted
			continue
		}
		kept := time.Now()
		if t.keeps > 0 {
			kept = kept.Add(-t.keeps)
		}
		if first < end {
			s := &publishedSource{topic: t, spans: []span{{p, first, end}}, few: true}
			msgs, err := s.Next(ctx)
			s.close()
			if err != nil {
				return latest, err
			}
			if len(msgs) > 0 && !msgs[0].Time.IsZero() {
				kept = msgs[0].Time
			}
		}
		if kept.After(latest) {
			latest = kept
		}
	}
	return latest, nil
}

// publishedSource reads spans one after the other.
type publishedSource struct {
	topic *publishedTopic
	spans []span
	part  sarama.PartitionConsumer // of the first span; nil: not open
	few   bool                     // one message is enough
}

const atOnce = 1000

// noMessage is how long a message may take. Offsets at the end of a partition may have none, such as those of
// transactions.
const noMessage = 30 * time.Second

func (s *publishedSource) close() {
	if s.part != nil {
		_ = s.part.Close()
		s.part = nil
	}
}

// Next implements audit.Source.
func (s *publishedSource) Next(ctx context.Context) (msgs []*consumer.Message, err error) {
	for len(s.spans) > 0 && len(msgs) == 0 {
		at := s.spans[0]
		if s.part == nil {
			if s.part, err = s.topic.consumer.ConsumePartition(s.topic.topic, at.partition, at.next); err != nil {
				return nil, s.topic.failed(at.partition, err)
			}
		}
		ended := false
		if msgs, ended, err = s.take(ctx, at); err != nil {
			s.close()
			return nil, s.topic.failed(at.partition, err)
		}
		if ended {
			s.close()
			s.spans = s.spans[1:]
		}
	}
	return msgs, nil
}

// take returns the next messages of a span. ended says that there are no more.
func (s *publishedSource) take(ctx context.Context, at span) (msgs []*consumer.Message, ended bool, err error) {
	silence := time.NewTimer(noMessage)
	defer silence.Stop()
	for {
		select {
		case raw, ok := <-s.part.Messages():
			if !ok {
				return nil, false, errors.New("the broker refused to go on: messages may have been deleted while they were read; try again")
			}
			if raw.Offset >= at.last {
				return msgs, true, nil
			}
			msgs = append(msgs, kafka.ToMessage(raw))
			switch {
			case raw.Offset == at.last-1:
				return msgs, true, nil
			case len(msgs) == atOnce, s.few:
				return msgs, false, nil
			}
			silence.Reset(noMessage)
		case <-silence.C:
			return nil, false, fmt.Errorf("no message came for %v, and offset %d was not reached: the broker is slow, or the last offsets have no message, "+
				"as after a transaction; try again when a later message was published", noMessage, at.last)
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}
