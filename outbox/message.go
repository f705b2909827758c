package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is to be published once its transaction is committed.
type Message struct {
	ID        string            // the same on every publication, at most 255 bytes; empty: derived within a handler, see WithScope
	Topic     string            // where to; a Kafka topic, a queue, an exchange: the Publisher's word
	Key       string            // messages of one key keep their order; may be any bytes; empty: free
	Payload   []byte            //
	Headers   map[string]string // values are bytes; names that begin with "txonce-" are ours
	NotBefore time.Time         // it is not published before, by the database's clock, and later messages of its key do not wait for it; zero: at once
}

// Headers that a Relay adds in the default HeaderFormat.
const (
	HeaderID       = "txonce-id"          // Message.ID
	HeaderSequence = "txonce-sequence"    // decimal; grows within a key, with gaps; a repeat carries the same
	HeaderEnqueued = "txonce-enqueued-at" // RFC 3339 in UTC, the same on every publication

	reservedHeader = "txonce-"
	maxID          = 255
	maxTopic       = 255
)

// ErrBadMessage is a message that cannot be enqueued as it is.
var ErrBadMessage = errors.New("outbox: bad message")

// Validate reports what makes m impossible to enqueue, as an ErrBadMessage. An empty ID is none of it.
func (m *Message) Validate() error {
	switch {
	case m.Topic == "":
		return fmt.Errorf("%w: no topic", ErrBadMessage)
	case len(m.Topic) > maxTopic || !plain(m.Topic):
		return fmt.Errorf("%w: topic %.40q: want at most %d bytes of UTF-8 without NUL", ErrBadMessage, m.Topic, maxTopic)
	case len(m.ID) > maxID || !plain(m.ID):
		return fmt.Errorf("%w: topic %q: id %.40q: want at most %d bytes of UTF-8 without NUL", ErrBadMessage, m.Topic, m.ID, maxID)
	}
	for name := range m.Headers {
		switch {
		case name == "":
			return fmt.Errorf("%w: topic %q: a header without name", ErrBadMessage, m.Topic)
		case strings.HasPrefix(strings.ToLower(name), reservedHeader):
			return fmt.Errorf("%w: topic %q: header %q: names that begin with %q are reserved", ErrBadMessage, m.Topic, name, reservedHeader)
		}
	}
	return nil
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Writer adds messages to the outbox as part of tx. When Enqueue has returned nil and tx is committed, each of them will
// be published; when tx is rolled back, none. Order within a key is the order of Enqueue; see LockOrderingKey of the stores for
// transactions that must not pass each other.
//
// Implementations begin with [Prepare], so that nothing is enqueued of a call that is refused. They keep nothing of msgs
// after they have returned.
type Writer[TTx any] interface {
	Enqueue(ctx context.Context, tx TTx, msgs ...Message) error
}

// Prepare returns msgs, validated and each with its ID; msgs itself stays as it is. It is for implementations of Writer.
func Prepare(ctx context.Context, msgs []Message) ([]Message, error) {
	ready := make([]Message, len(msgs))
	copy(ready, msgs)
	for i := range ready {
		if err := ready[i].Validate(); err != nil {
			return nil, err
		}
	}
	if err := AssignIDs(ctx, ready); err != nil {
		return nil, err
	}
	return ready, nil
}
