package kafka

import (
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
)

// ToMessage is the first delivery of raw, for programs that keep a sarama.ConsumerGroupHandler of their own and call a
// Processor in it; a Subscriber does this and the rest. Such a program should Check its sarama.Config, whose defaults lose messages, and
// mark a message only when the Processor has answered nil. A tombstone has a nil Payload. What is derived from raw is the
// same whenever and by whomever it is fetched: that is what keys, fingerprints and the horizon rest on. The result
// shares raw's value, which must not change any more.
func ToMessage(raw *sarama.ConsumerMessage) *consumer.Message {
	return &consumer.Message{
		Topic:    raw.Topic,
		Key:      string(raw.Key),
		Position: position(raw),
		Payload:  raw.Value,
		Headers:  headers(raw.Headers),
		Time:     timeOf(raw.Timestamp),
		Attempt:  1,
		Raw:      raw,
	}
}

func position(raw *sarama.ConsumerMessage) string {
	b := make([]byte, 0, len(raw.Topic)+24)
	b = append(append(b, raw.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(raw.Partition), 10), '/')
	return string(strconv.AppendInt(b, raw.Offset, 10))
}

func headers(raw []*sarama.RecordHeader) map[string]string {
	if len(raw) == 0 {
		return nil
	}
	h := make(map[string]string, len(raw))
	for _, r := range raw {
		if r != nil {
			h[string(r.Key)] = string(r.Value)
		}
	}
	return h
}

// timeOf is the time that Kafka keeps with a message: when it was produced, or on some topics when it was appended.
// Either never changes. A producer that sends no time sends a negative one.
func timeOf(t time.Time) time.Time {
	if t.UnixMilli() <= 0 {
		return time.Time{}
	}
	return t
}

// sizeOf is about what raw takes in memory.
func sizeOf(raw *sarama.ConsumerMessage) int {
	size := len(raw.Key) + len(raw.Value)
	for _, h := range raw.Headers {
		if h != nil {
			size += len(h.Key) + len(h.Value)
		}
	}
	return size
}
