package pgxstore

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// outgoing is a message in the form that the statements take. It shares the payload with the outbox.Message.
type outgoing struct {
	id, topic, key string
	payload        []byte // not nil
	headers        string // JSON; empty: none
	notBefore      time.Time
}

// maxYear is the last year that NotBefore may have. A timestamptz overflows for much later years.
const maxYear = 9999

func outgoingRows(msgs []outbox.Message) ([]outgoing, error) {
	rows := make([]outgoing, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		rows[i] = outgoing{id: m.ID, topic: m.Topic, key: m.OrderingKey, payload: m.Payload}
		if m.Payload == nil {
			rows[i].payload = []byte{}
		}
		if m.NotBefore.Year() > maxYear {
			return nil, fmt.Errorf("%w: topic %q: not before the year %d", outbox.ErrBadMessage, m.Topic,
				m.NotBefore.Year())
		}
		if !m.NotBefore.IsZero() {
			rows[i].notBefore = claims.Ceil(m.NotBefore)
		}
		if len(m.Headers) == 0 {
			continue
		}
		headers, err := driver.EncodeHeaders(m.Headers)
		if err != nil {
			return nil, fmt.Errorf("pgxstore: enqueue: message %q: headers: %w", m.ID, err)
		}
		rows[i].headers = string(headers)
	}
	return rows, nil
}

// maxStatement is about how many bytes of messages one statement carries. The server accepts up to a gigabyte, but
// keeps all of it in memory.
const maxStatement = 8 << 20

// fitting returns how many of rows fit into one statement, at least one.
func fitting(rows []outgoing) int {
	size := 0
	for i := range rows {
		r := &rows[i]
		size += len(r.id) + len(r.topic) + len(r.key) + len(r.payload) + len(r.headers) + 32
		if size > maxStatement && i > 0 {
			return i
		}
	}
	return len(rows)
}

func (r *outgoing) shard(shards int) int16 {
	return int16(outboxdriver.Shard(&outbox.Message{ID: r.id, OrderingKey: r.key}, shards))
}

func empty(n int) [][]byte {
	a := make([][]byte, n)
	for i := range a {
		a[i] = []byte{}
	}
	return a
}
