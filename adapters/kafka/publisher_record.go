package kafka

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// record is message index of call while it is being sent.
type record struct {
	sarama.ProducerMessage
	call  *publishing.Call
	index int
}

// isTopicName reports whether brokers accept a topic of that name. A regular expression took a fifth of newRecord's
// time.
func isTopicName(name string) bool {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	return name != "" && len(name) <= 249 && name != "." && name != ".." && !strings.ContainsFunc(name, strange)
}

// newRecord converts message i of c for sarama. Its error says why no broker would take the message. The record's
// timestamp is the time of publication: with the time of enqueueing, retention might delete a message that an outage
// has delayed as soon as it arrives.
func (p *Publisher) newRecord(m *outbox.Message, c *publishing.Call, i int) (*record, error) {
	if !isTopicName(m.Topic) {
		return nil, outbox.Permanent(fmt.Errorf("kafka: topic %q: want at most 249 of a-z A-Z 0-9 . _ -, but not . or .. alone", m.Topic))
	}
	r := &record{call: c, index: i}
	r.Topic, r.Metadata = m.Topic, r
	if m.OrderingKey != "" {
		r.Key = sarama.StringEncoder(m.OrderingKey)
	}
	r.Value = sarama.ByteEncoder(m.Payload)
	if m.Payload == nil {
		r.Value = sarama.ByteEncoder{} // an empty value, where nil would be a tombstone
	}
	r.Headers = make([]sarama.RecordHeader, 0, len(m.Headers))
	for name, value := range m.Headers {
		r.Headers = append(r.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
	}
	slices.SortFunc(r.Headers, func(a, b sarama.RecordHeader) int { return bytes.Compare(a.Key, b.Key) })
	if size := r.ByteSize(2); size > p.conf.Producer.MaxMessageBytes {
		return nil, outbox.Permanent(fmt.Errorf("kafka: topic %q: the message has %d bytes, and the Client's Producer.MaxMessageBytes is %d; send less, or raise it and the topic's max.message.bytes",
			m.Topic, size, p.conf.Producer.MaxMessageBytes))
	}
	return r, nil
}
