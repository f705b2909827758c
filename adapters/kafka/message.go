package kafka

import (
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
)

// ToMessage converts raw, as a first delivery, for programs that call a Processor in their own
// sarama.ConsumerGroupHandler. Such a program should Check its sarama.Config, because sarama's defaults lose messages,
// and mark a message only when the Processor has answered nil. A tombstone has a nil Payload. The result is the same on
// every fetch, by any member: keys, fingerprints and the horizon depend on that. It shares raw's value, which must not
// change any more.
func ToMessage(raw *sarama.ConsumerMessage) *consumer.Message {
	return &consumer.Message{
		Topic:       raw.Topic,
		OrderingKey: string(raw.Key),
		Position:    position(raw),
		Payload:     raw.Value,
		Headers:     headers(raw.Headers),
		Time:        timeOf(raw.Timestamp),
		Attempt:     1,
		Raw:         raw,
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

// timeOf is the timestamp of a message: when it was produced or, on some topics, appended. It never changes. A producer
// without timestamps sends a negative one.
func timeOf(t time.Time) time.Time {
	if t.UnixMilli() <= 0 {
		return time.Time{}
	}
	return t
}

// sizeOf is about how many bytes raw takes in memory.
func sizeOf(raw *sarama.ConsumerMessage) int {
	size := len(raw.Key) + len(raw.Value)
	for _, h := range raw.Headers {
		if h != nil {
			size += len(h.Key) + len(h.Value)
		}
	}
	return size
}
