package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/usercode"
)

// partitionError means that a Partitioner has no partition for a message. That is not a broker's fault.
type partitionError struct{ err error }

func (e *partitionError) Error() string { return "Producer.Partitioner: " + e.err.Error() }
func (e *partitionError) Unwrap() error { return e.err }

// marked wraps constructor so that each error and panic of its partitioners is a *partitionError. sarama calls them on
// goroutines of its own, where a panic would end the process.
func marked(constructor sarama.PartitionerConstructor) sarama.PartitionerConstructor {
	return func(topic string) sarama.Partitioner {
		p := &markedPartitioner{}
		p.broken = guarded(func() error { p.Partitioner = constructor(topic); return nil })
		return p
	}
}

type markedPartitioner struct {
	sarama.Partitioner
	broken error // the constructor panicked: there is no Partitioner
}

func (p *markedPartitioner) Partition(m *sarama.ProducerMessage, n int32) (partition int32, err error) {
	if p.broken != nil {
		return 0, p.broken
	}
	err = guarded(func() (err error) { partition, err = p.Partitioner.Partition(m, n); return err })
	return partition, err
}

// MessageRequiresConsistency implements sarama.DynamicConsistencyPartitioner, which sarama finds by assertion.
// Partitioners that do not panic for Partition do not panic here; for the others sarama may choose among all
// partitions.
func (p *markedPartitioner) MessageRequiresConsistency(m *sarama.ProducerMessage) (requires bool) {
	requires = true
	_ = guarded(func() error { requires = consistent(p.Partitioner, m); return nil })
	return requires
}

// guarded calls f, which calls the user's code.
func guarded(f func() error) (err error) {
	switch ended := usercode.Run(func() { err = f() }); {
	case ended != nil:
		return &partitionError{fmt.Errorf("%w\n%s", ended, ended.Stack)}
	case err != nil:
		return &partitionError{usercode.Error(err)}
	}
	return nil
}

// consistent reports whether p chooses m's partition among all partitions, and not only among those that have a leader
// now.
func consistent(p sarama.Partitioner, m *sarama.ProducerMessage) bool {
	if d, ok := p.(sarama.DynamicConsistencyPartitioner); ok {
		return d.MessageRequiresConsistency(m)
	}
	return p.RequiresConsistency()
}

// byKey tests a Partitioner: messages with one key must go to one partition, even if they differ in everything else,
// and in every relay.
func byKey(constructor sarama.PartitionerConstructor) (err error) {
	if constructor == nil {
		return errors.New("is nil")
	}
	if ended := usercode.Run(func() { err = tryByKey(constructor) }); ended != nil {
		return fmt.Errorf("was tried, and %w", ended)
	}
	return err
}

func tryByKey(constructor sarama.PartitionerConstructor) error {
	const topic, partitions, keys, rounds = "txonce-probe", 12, 20, 8
	one, other := constructor(topic), constructor(topic) // as in two relays
	if one == nil || other == nil {
		return errors.New("makes no partitioner")
	}
	home := make(map[string]int32, keys)
	for round := range rounds {
		for _, p := range []sarama.Partitioner{one, other} {
			for k := range keys {
				m := sarama.ProducerMessage{
					Topic: topic, Partition: int32((round + k) % partitions), // which NewManualPartitioner uses
					Value:   sarama.StringEncoder(fmt.Sprint(round)),
					Headers: []sarama.RecordHeader{{Key: []byte("id"), Value: fmt.Append(nil, round, k)}},
				}
				free := m
				if _, err := inRange(p, &free, partitions); err != nil { // any partition is right
					return fmt.Errorf("has no partition for a message without key: %w", err)
				}
				key := fmt.Sprintf("key-%d\x00\xff", k)
				m.Key = sarama.StringEncoder(key)
				n, err := inRange(p, &m, partitions)
				if err != nil {
					return fmt.Errorf("has no partition for a message with key %q: %w", key, err)
				}
				if before, ok := home[key]; ok && n != before {
					return fmt.Errorf("is not by key: it gives the key %q partition %d, and then %d", key, before, n)
				}
				home[key] = n
			}
		}
	}
	if !consistent(one, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("key")}) {
		return errors.New("does not require consistency for messages with a key: keys would move while a partition has no leader")
	}
	return nil
}

func inRange(p sarama.Partitioner, m *sarama.ProducerMessage, partitions int32) (int32, error) {
	n, err := p.Partition(m, partitions)
	if err == nil && (n < 0 || n >= partitions) {
		err = fmt.Errorf("%w: %d of %d", sarama.ErrInvalidPartition, n, partitions)
	}
	return n, err
}
