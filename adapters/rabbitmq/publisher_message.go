package rabbitmq

import (
	"fmt"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
)

// maxShort is how long AMQP's short strings can be: names, keys, and properties. amqp091-go ends the connection over a
// longer one.
const maxShort = 255

// newRecord converts m. Its error says why m can never be sent, or that Route panicked.
func (p *Publisher) newRecord(m *outbox.Message) (*record, error) {
	exchange, key, err := p.routeOf(m)
	if err != nil {
		return nil, err
	}
	r := &record{done: make(chan struct{}), topic: m.Topic, exchange: exchange, key: key}
	named := func(format string, args ...any) error {
		return outbox.Permanent(fmt.Errorf("rabbitmq: message %q to %s: "+format, append([]any{m.ID, r.where()},
			args...)...))
	}
	switch n := len(m.Payload); {
	case len(exchange) > maxShort || len(key) > maxShort:
		return nil, named("the name of an exchange and a routing key have at most %d bytes", maxShort)
	case len(m.ID) > maxShort:
		return nil, named("its ID has %d bytes, and at most %d fit", len(m.ID), maxShort)
	case n > p.cfg.MaxMessageBytes:
		return nil, named("its payload has %d bytes, and PublisherConfig.MaxMessageBytes is %d; send less, or raise it and the server's max_message_size",
			n, p.cfg.MaxMessageBytes)
	}
	headers, size := make(amqp.Table, len(m.Headers)+1), headerOverhead+len(m.ID)
	add := func(name, value string) {
		headers[name] = text(value)
		size += 1 + len(name) + 5 + len(value)
	}
	for name, value := range m.Headers {
		if len(name) > maxShort {
			return nil, named("the name of header %.40q has %d bytes, and at most %d fit", name, len(name), maxShort)
		}
		if name == "CC" || name == "BCC" { // the server closes the channel when the value is text
			return nil, named("RabbitMQ reads the header %s as a list of further routing keys and refuses text in it: give the header another name", name)
		}
		add(name, value)
	}
	if m.OrderingKey != "" {
		add(HeaderKey, m.OrderingKey)
	}
	contentType := m.Headers["content-type"]
	if len(contentType) > maxShort {
		contentType = "" // it is among the headers
	}
	if size += len(contentType); size > p.cfg.FrameBytes {
		return nil, named("its headers and key have %d bytes, and must fit into one frame of %d (PublisherConfig.FrameBytes, the server's frame_max)",
			size, p.cfg.FrameBytes)
	}
	r.msg = amqp.Publishing{
		MessageId: m.ID, Headers: headers, ContentType: contentType, Body: m.Payload, DeliveryMode: amqp.Persistent,
		Timestamp: enqueued(m),
	}
	return r, nil
}

// routeOf calls the user's function. When that panics for a message, other messages of the call are still sent.
func (p *Publisher) routeOf(m *outbox.Message) (exchange, key string, err error) {
	if ended := usercode.Run(func() { exchange, key = p.cfg.Route(m) }); ended != nil {
		return "", "", fmt.Errorf("rabbitmq: message %q of topic %q: PublisherConfig.Route %w\n%s", m.ID, m.Topic,
			ended, ended.Stack)
	}
	return exchange, key, nil
}

// headerOverhead is the size of a message's properties in their frame, without headers and texts.
const headerOverhead = 64

// text returns value as a string if it is UTF-8, and else as bytes: other clients decode strings as UTF-8.
func text(value string) any {
	if utf8.ValidString(value) {
		return value
	}
	return []byte(value)
}

// enqueued is when m was enqueued: each publication of m has the same timestamp. It is the zero time if a HeaderFormat
// has left the header out.
func enqueued(m *outbox.Message) time.Time {
	at, err := time.Parse(time.RFC3339Nano, m.Headers[outbox.HeaderEnqueued])
	if err != nil {
		return time.Time{}
	}
	return at
}

// where names r's destination in errors.
func (r *record) where() string { return r.destination().String() }

func (d destination) String() string {
	if d.exchange == "" {
		return fmt.Sprintf("queue %q", d.key)
	}
	return fmt.Sprintf("exchange %q with routing key %q", d.exchange, d.key)
}

// HeaderKey is the header with a message's ordering key, because AMQP has no property for that. A Publisher sets it
// unless the key is empty; a Subscriber reads it. It is a string, or bytes if the key is not UTF-8.
const HeaderKey = "txonce-key"
