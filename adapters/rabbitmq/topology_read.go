package rabbitmq

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A passive declaration tells nothing of a queue's arguments, but a declaration with other arguments than the queue's is refused with
// the name of one that differs and its value. readArgs declares a queue again and again, each time with what it has learned.

// inequivalent is how RabbitMQ refuses a declaration.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*but current is (none|'(true|false)'|the value '(.*)' of type '(\w+)')$`)

// maxArgs bounds how many arguments are read. RabbitMQ knows fewer.
const maxArgs = 40

// readArgs returns the arguments that queue, which exists, was declared with. expected is a guess. It takes the permission to configure
// the queue; without that read is false, and so it is where the server answers in words that are not known here.
func readArgs(conn Connection, queue string, expected amqp.Table) (args amqp.Table, read bool, err error) {
	args = amqp.Table{}
	for name, v := range expected {
		args[name] = v
	}
	durable, autoDelete := true, false
	for range maxArgs {
		ch, err := conn.Channel()
		if err != nil {
			return nil, false, err
		}
		_, err = ch.QueueDeclare(queue, durable, autoDelete, false, false, args)
		if err == nil {
			return args, true, ch.Close()
		}
		var refused *amqp.Error
		if !errors.As(err, &refused) || !ofChannel(err) {
			return nil, false, err
		}
		found := inequivalent.FindStringSubmatch(refused.Reason)
		if found == nil {
			return nil, false, nil
		}
		name, none, flag, value, kind := found[1], found[2] == "none", found[3] == "true", found[4], found[5]
		switch {
		case name == "durable":
			durable = flag
		case name == "auto_delete":
			autoDelete = flag
		case none:
			delete(args, name)
		default:
			args[name] = argument(value, kind)
		}
	}
	return nil, false, nil
}

// argument is the value of an argument of this type.
func argument(value, kind string) any {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && kind != "longstr" {
		return n
	}
	if kind == "bool" {
		return value == "true"
	}
	return value
}

// withArgs is q as the queue's arguments say. What they leave out may come from a policy and stays as q says.
func (q QueueSpec) withArgs(args amqp.Table) QueueSpec {
	q.Quorum = args["x-queue-type"] == "quorum"
	q.SingleActiveConsumer = args["x-single-active-consumer"] == true
	if n, there := number(args["x-delivery-limit"]); there {
		q.DeliveryLimit = int(max(n, NoDeliveryLimit))
	}
	if exchange, there := args["x-dead-letter-exchange"].(string); there {
		key, _ := args["x-dead-letter-routing-key"].(string)
		q.DeadLetters = &DeadLetters{Exchange: exchange, Key: key}
	}
	if n, there := number(args["x-message-ttl"]); there {
		q.MessageTTL = time.Duration(n) * time.Millisecond
	}
	return q
}

// checkSpec refuses a queue that is not safe, whatever Spec says, as far as its arguments can be read. It returns what the queue is like,
// and whether that was read or is only what Spec says.
func (c SubscriberConfig) checkSpec(conn Connection, version string) (_ SubscriberConfig, read bool, err error) {
	if c.Declare { // the server has compared them
		return c, true, nil
	}
	args, read, err := readArgs(conn, c.Queue, c.Spec.args(version))
	if err != nil {
		return c, false, err
	}
	if read {
		c.Spec = c.Spec.withArgs(args)
	}
	if c.Ordered && !c.Spec.SingleActiveConsumer {
		return c, read, final{errors.New("the queue was declared without x-single-active-consumer, which Ordered requires: two processes that receive " +
			"from one queue keep no order; create it with that argument")}
	}
	if err := errors.Join(c.checkLimit(version), c.checkExpiry(), c.checkWindow()); err != nil {
		return c, read, final{err}
	}
	return c, read, nil
}

// counted refuses a delivery that shows that the queue is a quorum queue, where its arguments could not be read and Spec says otherwise.
func (s *session) counted(raw *amqp.Delivery) error {
	_, counts := number(raw.Headers[headerDeliveries])
	if !counts || s.read || s.spec.Quorum {
		return nil
	}
	return fmt.Errorf("message %q was delivered with the header %s: the queue is a quorum queue, and Spec says that it is not; such a queue may drop messages "+
		"at its delivery limit, also when that was nobody's fault. Set Spec.Quorum, DeliveryLimit and DeadLetters as the queue has them, or grant this user "+
		"configure on the queue, so that they can be read", raw.MessageId, headerDeliveries)
}
