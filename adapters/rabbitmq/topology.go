package rabbitmq

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// QueueSpec describes a queue. A Subscriber whose user may configure the queue also reads the queue's arguments, which
// win where the two differ. It cannot see what a policy of the server adds: set here what policies set.
type QueueSpec struct {
	// Quorum means that it is a quorum queue.
	//
	// Defaults to a classic queue.
	Quorum bool

	// DeliveryLimit is how often a quorum queue delivers a message again before it drops it, or moves it to
	// DeadLetters. Stops, crashes and lost connections count as well as failures. NoDeliveryLimit means that there is
	// no limit.
	//
	// Defaults to the server's: none in RabbitMQ 3, 20 from RabbitMQ 4 on.
	DeliveryLimit int

	// DeadLetters is where the server moves messages that it gives up on.
	//
	// Defaults to nowhere: the server drops them.
	DeadLetters *DeadLetters

	// MessageTTL is how long messages may wait to be received before they expire.
	//
	// Defaults to never: a message may then wait for longer than the Processor remembers keys, and is parked as
	// unprovable. Run warns about that.
	MessageTTL time.Duration

	// SingleActiveConsumer means that the server delivers to one consumer at a time.
	SingleActiveConsumer bool

	// Bindings are declared when SubscriberConfig.Declare is set. Their exchanges must exist.
	Bindings []Binding

	// Args are further arguments of the queue's declaration. Arguments that have a field here are refused, and so are
	// x-max-length and x-max-length-bytes without x-overflow reject-publish or DeadLetters (RiskMaxLength), and
	// x-expires (RiskTemporaryQueue).
	Args amqp.Table

	autoDelete, transient bool // as read from the server
}

// DeadLetters is a dead letter exchange, and the routing key that messages get there; empty: they keep their own. A
// message that was deferred has the name of the queue as its routing key, so the exchange must route that name too. A
// fanout exchange does.
type DeadLetters struct{ Exchange, Key string }

// Binding brings an exchange's messages to a queue.
type Binding struct {
	Exchange, Key string
	Args          amqp.Table
}

// NoDeliveryLimit is the DeliveryLimit of a queue without a limit.
const NoDeliveryLimit = -1

// defaultLimit is the delivery limit of quorum queues from RabbitMQ 4 on.
const defaultLimit = 20

func (q QueueSpec) check() error {
	const field = "Args"
	if q.Args["x-queue-type"] == "stream" {
		return fmt.Errorf("%s: %w", field, errStream)
	}
	for _, arg := range []string{
		"x-queue-type", "x-delivery-limit", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl",
		"x-single-active-consumer",
	} {
		if _, set := q.Args[arg]; set {
			return fmt.Errorf("%s has %s; set its own field instead", field, arg)
		}
	}
	switch {
	case q.DeliveryLimit < NoDeliveryLimit:
		return fmt.Errorf("DeliveryLimit is %d; want a number, or NoDeliveryLimit", q.DeliveryLimit)
	case q.DeliveryLimit > 0 && !q.Quorum:
		return errors.New("DeliveryLimit is set, and only quorum queues have one")
	case q.MessageTTL < 0 || q.MessageTTL > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("MessageTTL is %v; want at most %v", q.MessageTTL, math.MaxInt32*time.Millisecond)
	}
	if err := q.Args.Validate(); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// args are the arguments of the queue's declaration on a server of this version; an empty version is unknown.
func (q QueueSpec) args(version string) amqp.Table {
	args := amqp.Table{}
	for name, v := range q.Args {
		args[name] = v
	}
	if q.Quorum {
		args["x-queue-type"] = "quorum"
	}
	if q.DeliveryLimit > 0 || q.DeliveryLimit == NoDeliveryLimit && major(version) >= 4 {
		// RabbitMQ 3 has no such value
		args["x-delivery-limit"] = int64(q.DeliveryLimit)
	}
	if q.DeadLetters != nil {
		args["x-dead-letter-exchange"] = q.DeadLetters.Exchange
		if q.DeadLetters.Key != "" {
			args["x-dead-letter-routing-key"] = q.DeadLetters.Key
		}
	}
	if q.MessageTTL > 0 {
		args["x-message-ttl"] = q.MessageTTL.Milliseconds()
	}
	if q.SingleActiveConsumer {
		args["x-single-active-consumer"] = true
	}
	return args
}

// limit is how often the queue delivers a message again on a server of this version; 0: no limit is known.
func (q QueueSpec) limit(version string) int {
	if q.Quorum && q.DeliveryLimit == 0 && major(version) >= 4 {
		return defaultLimit
	}
	return max(q.DeliveryLimit, 0)
}

func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// declare declares the queue, or without Declare checks that it exists.
func (c *SubscriberConfig) declare(ch ChannelDeclarer, version string) error {
	if !c.Declare {
		_, err := ch.QueueDeclarePassive(c.Queue, true, false, false, false, nil)
		return err
	}
	if err := c.checkDangers(version); err != nil {
		return fatalError{err}
	}
	if _, err := ch.QueueDeclare(c.Queue, true, false, false, false, c.Spec.args(version)); err != nil {
		return err
	}
	for _, b := range c.Spec.Bindings {
		if err := ch.QueueBind(c.Queue, b.Key, b.Exchange, false, b.Args); err != nil {
			return fmt.Errorf("bind to exchange %q: %w", b.Exchange, err)
		}
	}
	return nil
}
