package watermilltx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// Envelope is a message that watermill's forwarder.Publisher has wrapped, for a forwarder to publish.
type Envelope struct {
	Topic    string            `json:"destination_topic"`
	UUID     string            `json:"uuid"`
	Payload  []byte            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
}

// ErrEnvelope means that a payload is no envelope of the forwarder, or that its topic or UUID is missing.
var ErrEnvelope = errors.New("watermilltx: the payload is no envelope of watermill's forwarder")

// ReadEnvelope reads the payload of a message of the forwarder's topic. Its errors are ErrEnvelope and permanent.
func ReadEnvelope(payload []byte) (e Envelope, err error) {
	refuse := func(format string, args ...any) (Envelope, error) {
		return Envelope{}, consumer.Permanent(fmt.Errorf("%w: "+format, append([]any{ErrEnvelope}, args...)...))
	}
	var wrapped *Envelope
	if err := json.Unmarshal(bytes.TrimSpace(payload), &wrapped); err != nil {
		return refuse("%w", err)
	}
	switch {
	case wrapped == nil:
		return refuse("the payload is null")
	case wrapped.Topic == "":
		return refuse("destination_topic is missing; was the message published without forwarder.Publisher?")
	case wrapped.UUID == "":
		return refuse("uuid is empty, for topic %q: nothing tells this message from another", wrapped.Topic)
	}
	return *wrapped, nil
}

// Message returns the message in the envelope. Its ID is the UUID that the forwarder would have published it with. A
// Publisher gives it another UUID unless PublisherConfig.UUID returns the ID.
func (e Envelope) Message() outbox.Message {
	m := outbox.Message{ID: e.UUID, Topic: e.Topic, Payload: e.Payload, Headers: make(map[string]string,
		len(e.Metadata))}
	for name, value := range e.Metadata {
		if name == MetadataKey {
			m.OrderingKey = value
		} else {
			m.Headers[name] = value
		}
	}
	return m
}

// EnvelopeKey is the consumer.KeyFunc for a forwarder's topic: topic and UUID of the message inside. The envelope was
// written with its UUID in the transaction of its effect, so this UUID is a business key.
func EnvelopeKey(msg *consumer.Message) (string, error) {
	e, err := ReadEnvelope(msg.Payload)
	if err != nil {
		return "", err
	}
	return e.Topic + "/" + e.UUID, nil
}

// Unwrap returns the handler that empties a forwarder's topic into an outbox, in place of watermill's forwarder: each
// message is enqueued once, with the envelope's UUID as its ID. For readers that look at UUIDs, set
// PublisherConfig.UUID to a function that returns the ID. A message that is no envelope is parked, and holds up no
// other.
//
//	consumer.New(consumer.Config[*sql.Tx]{Name: "forwarder", Store: store, Key: watermilltx.EnvelopeKey, Handle: watermilltx.Unwrap(store)})
//
// Stop the forwarder first: a message that both of them take is published twice, with the same ID.
func Unwrap[TTx any](w outbox.Writer[TTx]) consumer.Handler[TTx] {
	return func(ctx context.Context, tx TTx, msg *consumer.Message) error {
		e, err := ReadEnvelope(msg.Payload)
		if err != nil {
			return err
		}
		err = w.Enqueue(ctx, tx, e.Message())
		if errors.Is(err, outbox.ErrBadMessage) { // such as a UUID longer than any ID
			return consumer.Permanent(err)
		}
		return err
	}
}
