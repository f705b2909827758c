package kafka

import (
	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
)

// ToMessage turns a message of sarama's into one that a consumer.Processor takes, as a first delivery. It is for
// programs that keep a sarama.ConsumerGroupHandler of their own and call Process in it; a Subscriber does this and the
// rest. It keeps raw's value, which must not change any more.
func ToMessage(raw *sarama.ConsumerMessage) *consumer.Message { return toMessage(raw) }
