package awssqs

import (
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// ToMessage converts raw, received from the queue of that name, for programs that receive by themselves and call a
// Processor. raw must have been received with all its attributes and system attributes.
//
// The ID is empty, because SQS gives a message another ID each time that it is sent, so its ID says nothing about the
// event. Attempt is how often SQS has delivered the message, to any process and for any reason.
//
// When a Publisher sent the message, Payload, OrderingKey and Headers are those of its outbox.Message. But on a FIFO
// queue OrderingKey is the message group when that was not made from this key, because SQS orders by group. Otherwise
// Payload is the body, OrderingKey is the message group of a FIFO queue, and Headers are the attributes. On a standard
// queue a message group names a tenant of a fair queue and is not used as OrderingKey. When a message claims to come
// from a Publisher and cannot be decoded, the fields are filled in as if it did not, and Malformed says why.
func ToMessage(queue string, raw types.Message) *consumer.Message {
	m := &consumer.Message{Topic: queue, Position: queue + "/" + aws.ToString(raw.MessageId), Attempt: 1, Raw: raw}
	if n, err := strconv.Atoi(raw.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)]); err == nil && n > 0 {
		m.Attempt = n
	}
	if ms, err := strconv.ParseInt(raw.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10,
		64); err == nil && ms > 0 {
		m.Time = time.UnixMilli(ms)
	}
	if m.OrderingKey, m.Payload, m.Headers, m.Malformed = decode(aws.ToString(raw.Body),
		raw.MessageAttributes); m.Malformed != nil {
		m.OrderingKey, m.Payload, m.Headers = "", []byte(aws.ToString(raw.Body)), rawHeaders(raw.MessageAttributes)
	}
	if group := group(raw); strings.HasSuffix(queue, fifoSuffix) && group != "" && GroupID(m.OrderingKey) != group &&
		(m.OrderingKey != "" || !strings.HasPrefix(group, keylessPrefix)) {
		// SQS orders by group; the attribute of a message that another system has forwarded may have another key
		m.OrderingKey = group
	}
	return m
}

// group is the message group on a FIFO queue, and the tenant of a fair queue on a standard one.
func group(raw types.Message) string {
	return raw.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
}

// GroupID returns the message group that a Publisher gives to the messages of key in a FIFO queue.
func GroupID(key string) string { return groupID(&outbox.Message{OrderingKey: key}) }

func rawHeaders(attributes map[string]types.MessageAttributeValue) map[string]string {
	headers := make(map[string]string, len(attributes))
	for name, v := range attributes {
		headers[name] = attributeBytes(v)
	}
	return headers
}

// sizeOf is about how many bytes raw takes in memory.
func sizeOf(raw types.Message) int {
	size := len(aws.ToString(raw.Body))
	for name, v := range raw.MessageAttributes {
		size += len(name) + len(attributeBytes(v))
	}
	return size
}
