package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is published after its transaction is committed.
type Message struct {
	ID string // the same on every publication, at most 255 bytes; empty: derived within a handler
	// a Kafka topic, a queue, an exchange: its meaning is the Publisher's; at most 255 bytes
	Topic string
	// any bytes, at most MaxOrderingKey; messages of one key keep their order; empty: no order
	OrderingKey string
	Payload     []byte // the content, any bytes, at most MaxPayload; may be empty
	// values are any bytes; names that begin with "txonce-" are reserved; at most MaxHeaders together
	Headers map[string]string

	// NotBefore is the earliest time of publication, by the database's clock. Later messages of the key do not wait for
	// it. Zero: at once.
	NotBefore time.Time
}

// Stored is a message in the outbox.
type Stored struct {
	Message
	Seq      int64 // grows in the order of transactions that exclude each other; unique in the outbox
	Shard    int
	Attempts int       // publications that failed and were counted
	Enqueued time.Time // by the database's clock

	// Unreadable says why the stored row cannot be turned back into the message, for example when another program has
	// written the row. The relay parks such a message and never publishes it. nil: the message is complete.
	Unreadable error
}

// Limits of a message, in bytes, which every database can store in every state of the message. A server of MySQL or
// MariaDB takes less where its max_allowed_packet is smaller: Enqueue then names that setting.
const (
	MaxOrderingKey = 2048 // PostgreSQL has the keys that are held back in an index, whose rows end at 2,704 bytes
	// PostgreSQL reads a row as text in some modes of its drivers, which is more than twice as long and ends at 1 GiB
	MaxPayload = 256 << 20
	MaxHeaders = 1 << 20 // names and values together
)

// Headers that PlainHeaders adds.
const (
	HeaderID       = "txonce-id"          // Message.ID
	HeaderSequence = "txonce-sequence"    // decimal; grows within a key, with gaps; a repeat carries the same
	HeaderEnqueued = "txonce-enqueued-at" // RFC 3339 in UTC, the same on every publication

	reservedHeader = "txonce-"
	maxID          = 255
	maxTopic       = 255
)

// Errors of Enqueue.
var (
	// ErrBadMessage says that a message cannot be enqueued as it is.
	ErrBadMessage = errors.New("outbox: bad message")

	// ErrNoID says that a message has no ID, and that no ID can be derived that stays the same when the handler runs
	// again. Set Message.ID.
	ErrNoID = errors.New("outbox: message without ID")
)

// Validate returns an ErrBadMessage that says why m cannot be enqueued. An empty ID is valid.
func (m *Message) Validate() error {
	switch {
	case m.Topic == "":
		return fmt.Errorf("%w: no topic", ErrBadMessage)
	case len(m.Topic) > maxTopic || !plain(m.Topic):
		return fmt.Errorf("%w: topic %.40q: want at most %d bytes of UTF-8 without NUL", ErrBadMessage, m.Topic,
			maxTopic)
	case len(m.ID) > maxID || !plain(m.ID):
		return fmt.Errorf("%w: topic %q: id %.40q: want at most %d bytes of UTF-8 without NUL", ErrBadMessage, m.Topic,
			m.ID, maxID)
	case len(m.OrderingKey) > MaxOrderingKey:
		return fmt.Errorf("%w: topic %q: the key has %d bytes: want at most %d; use a hash of it", ErrBadMessage,
			m.Topic, len(m.OrderingKey), MaxOrderingKey)
	case len(m.Payload) > MaxPayload:
		return fmt.Errorf("%w: topic %q: the payload has %d bytes: want at most %d", ErrBadMessage, m.Topic,
			len(m.Payload), MaxPayload)
	}
	headers := 0
	for name, value := range m.Headers {
		switch headers += len(name) + len(value); {
		case headers > MaxHeaders:
			return fmt.Errorf("%w: topic %q: the headers have more than %d bytes", ErrBadMessage, m.Topic, MaxHeaders)
		case name == "":
			return fmt.Errorf("%w: topic %q: a header without name", ErrBadMessage, m.Topic)
		case strings.HasPrefix(strings.ToLower(name), reservedHeader):
			return fmt.Errorf("%w: topic %q: header %q: names that begin with %q are reserved", ErrBadMessage, m.Topic,
				name, reservedHeader)
		}
	}
	return nil
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Writer adds messages to the outbox as part of tx. After Enqueue returned nil, all of msgs are published when tx is
// committed, and none when tx is rolled back. Messages of one key are published in the order of Enqueue; for
// transactions that must not overtake each other see LockOrderingKey of the stores.
//
// The error is an [ErrBadMessage] for a message that cannot be enqueued, and an [ErrNoID] for one without ID outside of
// a handler. After an error nothing is enqueued: roll tx back.
//
// Implementations begin with driver.Prepare, so that a call that is refused enqueues nothing. They keep no reference to
// msgs.
type Writer[TTx any] interface {
	Enqueue(ctx context.Context, tx TTx, msgs ...Message) error
}
