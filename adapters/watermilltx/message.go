package watermilltx

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// Metadata that this package writes. The relay adds headers of its own.
const (
	// MetadataKey is the ordering key of a message: outbox.Message.OrderingKey. watermill-kafka, for example, can
	// choose the partition by it.
	MetadataKey = "txonce-key"

	// MetadataUUID is the UUID that a handler gave to a message it produced. The message is published under another ID,
	// which stays the same when the handler runs again.
	MetadataUUID = "original_uuid"

	// binaryPrefix begins the name of metadata that is not text: many brokers keep metadata as JSON, which has no
	// bytes.
	binaryPrefix = "txonce-binary-"
)

// ToMessage returns raw as its first delivery. Topic is set within a Router only. OrderingKey and Time are set if a
// relay of this module published the message. ID stays empty, because watermill makes a UUID while publishing; the UUID
// is part of Position.
func ToMessage(raw *message.Message) *consumer.Message {
	topic := message.SubscribeTopicFromCtx(raw.Context())
	headers := decodeMetadata(raw.Metadata)
	msg := &consumer.Message{
		Topic:       topic,
		OrderingKey: headers[MetadataKey],
		Position:    position(topic, raw.UUID),
		Payload:     raw.Payload,
		Headers:     headers,
		Attempt:     1,
		Raw:         raw,
	}
	delete(headers, MetadataKey)
	if at, err := time.Parse(time.RFC3339Nano, headers[outbox.HeaderEnqueued]); err == nil {
		msg.Time = at
	}
	return msg
}

// position is different for each message, also without a UUID: dead letters without a key are told apart by it.
func position(topic, uuid string) string {
	if uuid == "" {
		uuid = "without UUID, received as " + watermill.NewUUID()
	}
	return topic + "/" + uuid
}

// encodeMetadata returns headers and an ordering key as metadata.
func encodeMetadata(headers map[string]string, key string) message.Metadata {
	metadata := make(message.Metadata, len(headers)+1)
	put := func(name, value string) {
		if isText(name) && isText(value) && !strings.HasPrefix(name, binaryPrefix) {
			metadata[name] = value
			return
		}
		metadata[binaryPrefix+base64.RawURLEncoding.EncodeToString([]byte(name))] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	for name, value := range headers {
		put(name, value)
	}
	if key != "" {
		put(MetadataKey, key)
	}
	return metadata
}

// decodeMetadata is the inverse of encodeMetadata. A value that cannot be decoded stays as it is.
func decodeMetadata(metadata message.Metadata) map[string]string {
	headers := make(map[string]string, len(metadata))
	for name, value := range metadata {
		if encoded, binary := strings.CutPrefix(name, binaryPrefix); binary {
			n, errName := base64.RawURLEncoding.DecodeString(encoded)
			v, errValue := base64.StdEncoding.DecodeString(value)
			if errName == nil && errValue == nil {
				name, value = string(n), string(v)
			}
		}
		headers[name] = value
	}
	return headers
}

// isText reports whether s survives JSON and a database's text unchanged.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
