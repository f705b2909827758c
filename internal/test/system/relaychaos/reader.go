//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/outbox"
)

// reader reads the whole topic while relays publish to it.
type reader struct {
	client    sarama.Client
	topic     string
	consumer  sarama.Consumer
	parts     []sarama.PartitionConsumer
	listening sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	records  []*publication      // ordered by offset within each partition
	next     [partitions]int64   // the offset after the last one that was read
	distinct map[string]struct{} // ids
	moved    time.Time           // when the last record was read
	err      error
}

func openReader(client sarama.Client, topic string) (*reader, error) {
	r := &reader{client: client, topic: topic, distinct: map[string]struct{}{}, moved: time.Now()}
	r.changed = sync.NewCond(&r.mu)
	var err error
	if r.consumer, err = sarama.NewConsumerFromClient(client); err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for i := range int32(partitions) {
		part, err := r.consumer.ConsumePartition(topic, i, sarama.OffsetOldest)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read partition %d of %s: %w", i, topic, err), r.Close())
		}
		r.parts = append(r.parts, part)
		r.listening.Go(func() {
			for m := range part.Messages() {
				r.take(m)
			}
		})
		r.listening.Go(func() {
			for err := range part.Errors() { // sarama retries, unless the offset is gone
				if errors.Is(err, sarama.ErrOffsetOutOfRange) {
					r.fail(err)
				}
			}
		})
	}
	return r, nil
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.changed.Broadcast()
}

func (r *reader) take(m *sarama.ConsumerMessage) {
	p := read(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, p)
	r.next[p.partition] = p.offset + 1
	r.distinct[p.id] = struct{}{}
	r.moved = time.Now()
	r.changed.Broadcast()
}

// read parses a record. A prefix marks the relay's headers.
func read(m *sarama.ConsumerMessage) *publication {
	p := &publication{
		partition: m.Partition, offset: m.Offset, key: string(m.Key), payload: m.Value, seq: -1,
		headers: map[string]string{},
	}
	for _, h := range m.Headers {
		switch name, value := string(h.Key), string(h.Value); {
		case name == outbox.HeaderID:
			p.id = value
		case name == outbox.HeaderSequence:
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				p.seq = n
			}
		case !strings.HasPrefix(name, "txonce-"):
			p.headers[name] = value
		}
	}
	return p
}

// count returns how many messages have been published at least once, and the number of records.
func (r *reader) count() (distinct, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.distinct), len(r.records)
}

// idle returns the time since the last record.
func (r *reader) idle() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.moved)
}

// all returns every record up to the topic's current end.
func (r *reader) all(ctx context.Context) ([]*publication, error) {
	var ends [partitions]int64
	for i := range ends {
		end, err := r.client.GetOffset(r.topic, int32(i), sarama.OffsetNewest)
		if err != nil {
			return nil, fmt.Errorf("read the end of partition %d: %w", i, err)
		}
		ends[i] = end
	}
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock() // so that Wait cannot miss the broadcast after ctx was checked
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 0; i < partitions; {
		switch {
		case r.err != nil:
			return nil, fmt.Errorf("read topic %s: %w", r.topic, r.err)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("read topic %s up to offset %d of partition %d: %w", r.topic, ends[i], i, ctx.Err())
		case r.next[i] < ends[i]:
			r.changed.Wait()
		default:
			i++
		}
	}
	return r.records, nil
}

// Close stops reading.
func (r *reader) Close() error {
	for _, p := range r.parts {
		p.AsyncClose()
	}
	r.listening.Wait()
	return r.consumer.Close()
}
