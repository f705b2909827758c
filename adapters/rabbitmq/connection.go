package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Connection is what this package asks of a connection to RabbitMQ. Dial makes real ones; rabbitmqtest has another.
type Connection interface {
	Channel() (Channel, error)
	NotifyClose(receiver chan *amqp.Error) chan *amqp.Error
	NotifyBlocked(receiver chan amqp.Blocking) chan amqp.Blocking
	IsClosed() bool
	Close() error
	CloseDeadline(deadline time.Time) error // as Close, which waits for a server that may never answer; ends blocked writes at the deadline
}

// Channel is a channel of it: *amqp.Channel, but for the type that PublishWithDeferredConfirm returns.
type Channel interface {
	Qos(prefetchCount, prefetchSize int, global bool) error
	ConsumeWithContext(ctx context.Context, queue, consumer string, autoAck, exclusive, noLocal, noWait bool, args amqp.Table) (<-chan amqp.Delivery, error)
	Cancel(consumer string, noWait bool) error
	Ack(tag uint64, multiple bool) error
	Nack(tag uint64, multiple, requeue bool) error

	QueueDeclare(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
	QueueDeclarePassive(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
	QueueBind(name, key, exchange string, noWait bool, args amqp.Table) error
	ExchangeDeclare(name, kind string, durable, autoDelete, internal, noWait bool, args amqp.Table) error
	ExchangeDeclarePassive(name, kind string, durable, autoDelete, internal, noWait bool, args amqp.Table) error

	Confirm(noWait bool) error
	NotifyReturn(c chan amqp.Return) chan amqp.Return
	PublishWithDeferredConfirm(exchange, key string, mandatory, immediate bool, msg amqp.Publishing) (Confirm, error)

	NotifyClose(receiver chan *amqp.Error) chan *amqp.Error
	NotifyCancel(c chan string) chan string
	IsClosed() bool
	Close() error
}

// Confirm is the server's answer to one message that was published on a channel in confirm mode. Confirms of one channel come in any
// order. *amqp.DeferredConfirmation implements it.
type Confirm interface {
	Done() <-chan struct{} // closed when the server has answered, and when the channel is closed
	Acked() bool           // the server has the message; false after Done: it has refused it, or the channel is closed
}

var _ Confirm = (*amqp.DeferredConfirmation)(nil)

// Dialer opens connections. The adapter calls it at the start and whenever it has lost the connection; ctx bounds the
// attempt.
type Dialer func(ctx context.Context) (Connection, error)
