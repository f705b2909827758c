package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/outbox"
)

// Events calls take for each record of the topic of events, in order within each partition.
func (b *kafkaBroker) Events(ctx context.Context, take func(id, customer string, payload []byte)) error {
	ends, err := b.endsOf(b.events)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(b.client)
	if err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	defer consumer.Close()
	all := make([][]*sarama.ConsumerMessage, len(ends))
	reading, ctx := errgroup.WithContext(ctx)
	for i, end := range ends {
		reading.Go(func() (err error) {
			if all[i], err = readPartition(ctx, consumer, b.events, int32(i), end); err != nil {
				err = fmt.Errorf("read the events of partition %d: %w", i, err)
			}
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return err
	}
	for _, records := range all {
		for _, m := range records {
			id := ""
			for _, h := range m.Headers {
				if string(h.Key) == outbox.HeaderID {
					id = string(h.Value)
				}
			}
			take(id, string(m.Key), m.Value)
		}
	}
	return nil
}

func readPartition(ctx context.Context, consumer sarama.Consumer, topic string, partition int32,
	end int64,
) (read []*sarama.ConsumerMessage, err error) {
	if end == 0 {
		return nil, nil
	}
	records, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer records.Close()
	for {
		select {
		case m := <-records.Messages():
			if read = append(read, m); m.Offset >= end-1 {
				return read, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
