package rabbitmqtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// message is one copy of a message, in one queue.
type message struct {
	p           amqp.Publishing
	exchange    string
	key         string
	place       int64 // in its queue
	redelivered bool
	count       int64     // deliveries that came back, which quorum queues count
	expires     time.Time // zero: never
}

func (m *message) delivery(ch *channel, consumer string, tag uint64) amqp.Delivery {
	p := m.p
	headers := maps.Clone(p.Headers)
	if m.count > 0 {
		if headers == nil {
			headers = amqp.Table{}
		}
		headers["x-delivery-count"] = m.count
	}
	return amqp.Delivery{
		Acknowledger: ch, ConsumerTag: consumer, DeliveryTag: tag, Redelivered: m.redelivered, Exchange: m.exchange,
		RoutingKey: m.key,
		Headers:    headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority:      p.Priority,
		CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId,
		Timestamp: p.Timestamp,
		Type:      p.Type, UserId: p.UserId, AppId: p.AppId, Body: slices.Clone(p.Body),
	}
}

// copied returns a copy of m with the changes that the wire makes.
func copied(m amqp.Publishing) amqp.Publishing {
	m.Headers = table(m.Headers)
	m.Body = append([]byte{}, m.Body...)
	if !m.Timestamp.IsZero() {
		m.Timestamp = time.Unix(m.Timestamp.Unix(), 0)
	}
	return m
}

func table(t amqp.Table) amqp.Table {
	if t == nil {
		return nil
	}
	wired := make(amqp.Table, len(t))
	for name, v := range t {
		wired[name] = field(v)
	}
	return wired
}

// field returns v as the other end of the connection reads it.
func field(v any) any {
	switch v := v.(type) {
	case int:
		return int32(v)
	case []byte:
		return slices.Clone(v)
	case time.Time:
		return time.Unix(v.Unix(), 0)
	case amqp.Table:
		return table(v)
	case []any:
		wired := make([]any, len(v))
		for i := range v {
			wired[i] = field(v[i])
		}
		return wired
	default:
		return v
	}
}

// frame returns how many bytes the frame of p's properties has.
func frame(p *Publish) (int, error) {
	m := &p.Message
	n := 8 + 14
	for _, s := range []string{
		p.Exchange, p.Key, m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId,
		m.Type, m.UserId, m.AppId,
	} {
		if len(s) > 255 {
			return 0, fmt.Errorf("amqp: shortstr %q exceeds 255 bytes", s)
		}
		if s != "" {
			n += 1 + len(s)
		}
	}
	n -= len(p.Exchange) + len(p.Key) // of another frame
	if m.DeliveryMode != 0 {
		n++
	}
	if !m.Timestamp.IsZero() {
		n += 8
	}
	if len(m.Headers) == 0 {
		return n, nil
	}
	size, err := tableSize(m.Headers)
	return n + size, err
}

func tableSize(t amqp.Table) (int, error) {
	n := 4
	for name, v := range t {
		if len(name) > 255 {
			return 0, fmt.Errorf("amqp: shortstr %q exceeds 255 bytes", name)
		}
		size, err := fieldSize(v)
		if err != nil {
			return 0, err
		}
		n += 1 + len(name) + size
	}
	return n, nil
}

func fieldSize(v any) (int, error) {
	switch v := v.(type) {
	case nil:
		return 1, nil
	case bool, byte, int8:
		return 2, nil
	case int16, uint16:
		return 3, nil
	case int, int32, uint32, float32:
		return 5, nil
	case amqp.Decimal:
		return 6, nil
	case int64, float64, time.Time:
		return 9, nil
	case string:
		return 5 + len(v), nil
	case []byte:
		return 5 + len(v), nil
	case amqp.Table:
		n, err := tableSize(v)
		return 1 + n, err
	case []any:
		n := 5
		for _, e := range v {
			size, err := fieldSize(e)
			if err != nil {
				return 0, err
			}
			n += size
		}
		return n, nil
	default:
		return 0, amqp.ErrFieldType
	}
}

// expiration reads a message's own time to live.
func expiration(text string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(ms) * time.Millisecond, err == nil && ms >= 0
}
