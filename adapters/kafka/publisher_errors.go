package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// classify returns err in the form that the outbox needs: a plain or Permanent error of a message to topic, a
// TopicError, or an UnavailableError of the brokers.
func classify(topic string, err error) error {
	named := fmt.Errorf("kafka: topic %q: %w", topic, err)
	switch {
	case impossible(err):
		return outbox.Permanent(named)
	case unplaced(err):
		return named
	}
	var answer sarama.KError
	if !errors.As(err, &answer) {
		return &outbox.UnavailableError{Err: named} // errors of connections, and of sarama without a connection
	}
	switch answer {
	case sarama.ErrInvalidTopic:
		return outbox.Permanent(named)
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge:
		return &publishing.BatchError{Err: outbox.Permanent(fmt.Errorf("%w; send less, or raise the topic's max.message.bytes", named))}
	case sarama.ErrInvalidRecord:
		return &publishing.BatchError{Err: outbox.Permanent(fmt.Errorf("%w; a compacted topic, for example, takes no message without a key", named))}
	case sarama.ErrInvalidTimestamp: // the timestamp is when the message was sent
		return &outbox.UnavailableError{Err: fmt.Errorf("%w; is this machine's clock right?", named)}
	case sarama.ErrUnsupportedCompressionType, sarama.ErrUnsupportedForMessageFormat, sarama.ErrUnsupportedVersion,
		sarama.ErrInvalidRequiredAcks:
		return &outbox.UnavailableError{Err: fmt.Errorf("%w; the Client's settings ask for more than its brokers or the topic can do", named)}
	case sarama.ErrUnknownTopicOrPartition:
		return &outbox.TopicError{Err: fmt.Errorf("%w; create it, it is not created by publishing to it", named)}
	case sarama.ErrTopicAuthorizationFailed:
		return &outbox.TopicError{Err: fmt.Errorf("%w; grant this client WRITE on it", named)}
	case sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrRequestTimedOut,
		sarama.ErrBrokerNotAvailable,
		sarama.ErrReplicaNotAvailable, sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas,
		sarama.ErrNotEnoughReplicasAfterAppend,
		sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch,
		sarama.ErrThrottlingQuotaExceeded,
		// that gives a producer its ID
		sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
		sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism,
		sarama.ErrIllegalSASLState:
		return &outbox.UnavailableError{Err: named}
	default:
		if sequenceRefused(err) {
			return &outbox.UnavailableError{Err: named}
		}
		return named
	}
}

// impossible reports whether sarama cannot write such a message.
func impossible(err error) bool {
	var settings sarama.ConfigurationError
	var unencodable sarama.PacketEncodingError
	return errors.As(err, &settings) || errors.As(err, &unencodable)
}

// unplaced reports whether the Partitioner has no partition for the message.
func unplaced(err error) bool {
	var p *partitionError
	return errors.As(err, &p) || errors.Is(err, sarama.ErrInvalidPartition)
}

// connectionLost reports whether err means that there was no connection. A producer that had such errors must be
// replaced: after three of them sarama's own circuit breakers fail a topic or partition for ten seconds, even if the
// brokers are back at once.
func connectionLost(err error) bool {
	var answer sarama.KError
	return !errors.As(err, &answer) && !impossible(err) && !unplaced(err)
}

// sequenceRefused reports whether the brokers refuse the epoch or the sequence numbers of the producer.
func sequenceRefused(err error) bool {
	var answer sarama.KError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer {
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrInvalidProducerEpoch, sarama.ErrUnknownProducerID,
		sarama.ErrInvalidProducerIDMapping, sarama.ErrProducerFenced:
		return true
	default:
		return false
	}
}
