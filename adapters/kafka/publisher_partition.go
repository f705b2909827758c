package kafka

import "github.com/IBM/sarama"

// partitionError is that a Partitioner has no partition for a message, which no broker is to blame for.
type partitionError struct{ err error }

func (e *partitionError) Error() string { return "Producer.Partitioner: " + e.err.Error() }
func (e *partitionError) Unwrap() error { return e.err }

// marked returns constructor such that its partitioners' errors can be told from those of brokers.
func marked(constructor sarama.PartitionerConstructor) sarama.PartitionerConstructor {
	return func(topic string) sarama.Partitioner { return &markedPartitioner{constructor(topic)} }
}

type markedPartitioner struct{ sarama.Partitioner }

func (p *markedPartitioner) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	partition, err := p.Partitioner.Partition(m, n)
	if err != nil {
		return partition, &partitionError{err}
	}
	return partition, nil
}

// MessageRequiresConsistency makes every message with a key choose among all partitions, not only those that have a leader
// at the moment.
func (p *markedPartitioner) MessageRequiresConsistency(m *sarama.ProducerMessage) bool {
	if d, ok := p.Partitioner.(sarama.DynamicConsistencyPartitioner); ok {
		return m.Key != nil || d.MessageRequiresConsistency(m)
	}
	return m.Key != nil || p.RequiresConsistency()
}
