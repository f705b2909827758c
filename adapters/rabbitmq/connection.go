package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Connection has the methods of a connection to RabbitMQ that this package calls. Dial opens real ones; a test may have
// its own. It is safe for concurrent use.
type Connection interface {
	Channel() (Channel, error)
	NotifyClose(receiver chan *amqp.Error) chan *amqp.Error
	NotifyBlocked(receiver chan amqp.Blocking) chan amqp.Blocking
	IsClosed() bool
	Close() error

	// CloseDeadline closes the connection as Close does, but waits for the server's answer only until deadline. Blocked
	// writes end then.
	CloseDeadline(deadline time.Time) error
}

// Channel is one channel of a Connection, split into roles. One value has them all: an *amqp.Channel, except that its
// PublishWithDeferredConfirm returns a Confirm.
type Channel struct {
	ChannelConsumer
	ChannelDeclarer
	ChannelPublisher
	ChannelCloser
}

// ChannelConsumer receives and acknowledges messages.
type ChannelConsumer interface {
	Qos(prefetchCount, prefetchSize int, global bool) error
	ConsumeWithContext(ctx context.Context, queue, consumer string, autoAck, exclusive, noLocal, noWait bool,
		args amqp.Table) (<-chan amqp.Delivery, error)
	Cancel(consumer string, noWait bool) error
	NotifyCancel(c chan string) chan string
	Ack(tag uint64, multiple bool) error
	Nack(tag uint64, multiple, requeue bool) error
}

// ChannelDeclarer declares queues and exchanges.
type ChannelDeclarer interface {
	QueueDeclare(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
	QueueDeclarePassive(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
	QueueBind(name, key, exchange string, noWait bool, args amqp.Table) error
	ExchangeDeclare(name, kind string, durable, autoDelete, internal, noWait bool, args amqp.Table) error
	ExchangeDeclarePassive(name, kind string, durable, autoDelete, internal, noWait bool, args amqp.Table) error
}

// ChannelPublisher publishes messages that the server confirms.
type ChannelPublisher interface {
	Confirm(noWait bool) error
	NotifyReturn(c chan amqp.Return) chan amqp.Return
	PublishWithDeferredConfirm(exchange, key string, mandatory, immediate bool, msg amqp.Publishing) (Confirm, error)
}

// ChannelCloser closes the channel and reports when it is closed.
type ChannelCloser interface {
	NotifyClose(receiver chan *amqp.Error) chan *amqp.Error
	IsClosed() bool
	Close() error
}

// Confirm is the server's answer to one message that was published on a channel in confirm mode. Confirms of one
// channel come in any order. *amqp.DeferredConfirmation implements it.
type Confirm interface {
	Done() <-chan struct{} // closed when the server has answered, and when the channel is closed
	Acked() bool           // the server has the message; false after Done: it has refused it, or the channel is closed
}

var _ Confirm = (*amqp.DeferredConfirmation)(nil)

// Dialer opens connections. The adapter calls it at the start and after it has lost the connection; ctx bounds the
// attempt.
type Dialer func(ctx context.Context) (Connection, error)
