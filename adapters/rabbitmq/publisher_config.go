package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/txonce/txonce/outbox"
)

// Defaults of PublisherConfig.
const (
	DefaultMaxMessageBytes = 16 << 20
	DefaultFrameBytes      = 128 << 10
)

// minFrameBytes is AMQP's frame-min-size.
const minFrameBytes = 4096

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Dial connects; see [Dial]. The Publisher has one connection, and opens another when it is lost. Do not share it
	// with a Subscriber: a server that is short of memory stops reading from connections that publish, and so from
	// their acknowledgements. Required.
	Dial Dialer

	// Exchange is where messages go, with their Topic as the routing key. It must exist, and so must bindings: a
	// message that no queue gets is an error.
	//
	// Defaults to "", the default exchange: the Topic is the name of the queue.
	Exchange string

	// Route returns where each message goes, in place of Exchange. It must return the same for the same message every
	// time, and messages of one key that go through different exchanges or keys may overtake each other.
	//
	// Defaults to Exchange and Topic.
	Route func(m *outbox.Message) (exchange, key string)

	// MaxMessageBytes is the size of the largest payload; a larger one is refused for good before it is sent. A server
	// whose max_message_size is less also refuses it, but closes the channel.
	//
	// Defaults to DefaultMaxMessageBytes, which RabbitMQ 4 accepts (RabbitMQ 3: 128 MiB).
	MaxMessageBytes int

	// FrameBytes is the server's frame_max, or the client's if that is less. The headers of a message must fit into one
	// frame, or the server would cut the connection: a message with larger headers is refused for good.
	//
	// Defaults to DefaultFrameBytes, which is RabbitMQ's.
	FrameBytes int
}

// withDefaults returns c with its defaults, or an error that names every wrong field.
func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("rabbitmq: PublisherConfig."+format, args...))
	}
	if c.Dial == nil {
		refuse("Dial is required; rabbitmq.Dial makes one")
	}
	if c.Route != nil && c.Exchange != "" {
		refuse("Exchange is %q, and Route is set as well: Route names the exchange, set Exchange to \"\"", c.Exchange)
	}
	if len(c.Exchange) > maxShort {
		refuse("Exchange has %d bytes; a name has at most %d", len(c.Exchange), maxShort)
	}
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	if c.MaxMessageBytes < 0 {
		refuse("MaxMessageBytes is %d; it must not be negative", c.MaxMessageBytes)
	}
	c.FrameBytes = cmp.Or(c.FrameBytes, DefaultFrameBytes)
	if c.FrameBytes < minFrameBytes {
		refuse("FrameBytes is %d; no server has less than %d", c.FrameBytes, minFrameBytes)
	}
	if c.Route == nil {
		exchange := c.Exchange
		c.Route = func(m *outbox.Message) (string, string) { return exchange, m.Topic }
	}
	return c, errors.Join(wrong...)
}
