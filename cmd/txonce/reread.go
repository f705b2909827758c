package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
)

// reread is an audit.Source: messages of a topic behind the committed offsets of a group. It reads all of them in order
// if there are few, and short runs at random places otherwise.
type reread struct {
	client     sarama.Client
	consumer   sarama.Consumer
	topic      string
	partitions []span
	all        bool
	silent     time.Duration    // how long no message may come before the rest of a run is left out
	left       map[int32]string // by partition: what was left out last
	unknown    string           // that the group has committed nothing; empty: it has
}

// span is what a partition holds behind the committed offset.
type span struct {
	partition  int32
	next, last int64 // last is excluded
}

const (
	runLength  = 1000    // offsets that are read at once
	fewOffsets = 100_000 // so many are read in order
)

func rereadKafka(ctx context.Context, address, group, topic string) (audit.Source, func(), error) {
	s := &reread{topic: topic, silent: 5 * time.Second, left: map[int32]string{}}
	err := unlessEnded(ctx, func() (err error) {
		if s.client, err = kafkaClient(address); err != nil {
			return err
		}
		if err := s.locate(group); err != nil {
			_ = s.client.Close()
			return fmt.Errorf("--kafka: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.consumer.Close(); _ = s.client.Close() }, nil
}

// locate finds the committed offsets.
func (s *reread) locate(group string) error {
	partitions, err := s.client.Partitions(s.topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", s.topic, err)
	}
	admin, err := sarama.NewClusterAdminFromClient(s.client) // not closed: that would close the client
	if err != nil {
		return err
	}
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{s.topic: partitions})
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	total := int64(0)
	s.unknown = fmt.Sprintf("group %s has no committed offsets of topic %s, so no message counts as acknowledged: is --group the worker's SubscriberConfig.Group?", group, s.topic)
	for _, p := range partitions {
		block := committed.GetBlock(s.topic, p)
		if block == nil || block.Offset < 0 {
			continue
		}
		s.unknown = ""
		oldest, err := s.client.GetOffset(s.topic, p, sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("topic %s: %w", s.topic, err)
		}
		if oldest < block.Offset {
			s.partitions = append(s.partitions, span{p, oldest, block.Offset})
			total += block.Offset - oldest
		}
	}
	s.all = total <= fewOffsets
	s.consumer, err = sarama.NewConsumerFromClient(s.client)
	return err
}

// Next implements audit.Source.
func (s *reread) Next(ctx context.Context) ([]*consumer.Message, error) {
	for len(s.partitions) > 0 {
		i := rand.IntN(len(s.partitions))
		at := &s.partitions[i]
		from := at.next
		if !s.all {
			from += rand.Int64N(at.last - at.next)
		}
		until := min(from+runLength, at.last)
		msgs, err := s.run(ctx, at.partition, from, until)
		if err != nil {
			return nil, err
		}
		if s.all {
			at.next = until
		}
		if at.next == at.last { // all of it was read
			s.partitions = append(s.partitions[:i], s.partitions[i+1:]...)
		}
		if len(msgs) > 0 {
			return msgs, nil
		}
	}
	return nil, nil
}

// Notes implements audit.Noter.
func (s *reread) Notes() []string {
	notes := slices.Sorted(maps.Values(s.left))
	if s.unknown != "" {
		notes = append(notes, s.unknown)
	}
	return notes
}

// run reads the messages from one offset up to another, which is excluded. Some offsets have no message: those of
// transactions and of compacted topics.
func (s *reread) run(ctx context.Context, partition int32, from, until int64) (msgs []*consumer.Message, err error) {
	part, err := s.consumer.ConsumePartition(s.topic, partition, from)
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	defer part.Close()
	last := from - 1
	silence := time.NewTimer(s.silent)
	defer silence.Stop()
	for {
		select {
		case raw, ok := <-part.Messages():
			switch {
			case !ok:
				return nil, fmt.Errorf("read topic %s, partition %d: the broker refused to go on: messages may have been deleted while they were read; try again", s.topic, partition)
			case raw.Offset >= until:
				return msgs, nil
			}
			msgs, last = append(msgs, kafka.ToMessage(raw)), raw.Offset
			if raw.Offset == until-1 {
				return msgs, nil
			}
			silence.Reset(s.silent)
		case err := <-part.Errors():
			return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
		case <-silence.C:
			s.left[partition] = fmt.Sprintf("topic %s, partition %d: no message came for %v after offset %d, and up to offset %d nothing was compared: the broker is slow, "+
				"or these offsets have no message, as after a transaction", s.topic, partition, s.silent, last, until-1)
			return msgs, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
