package rabbitmq

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A passive declaration does not return a queue's arguments. But the server refuses a declaration whose arguments differ from the queue's,
// and names one that differs, with its value. So readArgs declares the queue again and again, each time with one more correct argument.

// inequivalent is the reason that RabbitMQ gives when it refuses a declaration.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*but current is (none|'(true|false)'|the value '(.*)' of type '(\w+)')$`)

// maxArgs is the maximum number of declarations. RabbitMQ has fewer arguments.
const maxArgs = 40

// readArgs returns the arguments of an existing queue. It begins with those that are expected. read is false when the user may not
// configure the queue, or when the server's reason is not understood.
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

// withArgs returns q with the values of the queue's arguments. Missing arguments may be set by a policy, so their fields stay as they are.
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

// checkSpec reads the queue's arguments, if it can, and refuses a queue that is not safe although Spec says that it is. It returns c with the
// arguments in Spec, and whether they were read or compared by the server.
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
		return c, read, fatalError{errors.New("the queue was declared without x-single-active-consumer, which Ordered requires: two processes that receive " +
			"from one queue keep no order; create it with that argument")}
	}
	if err := c.checkDangers(version); err != nil {
		return c, read, fatalError{err}
	}
	return c, read, nil
}

// checkQuorum refuses a delivery that shows that the queue is a quorum queue, when its arguments could not be read and Spec says otherwise.
func (s *session) checkQuorum(raw *amqp.Delivery) error {
	_, counts := number(raw.Headers[headerDeliveries])
	if !counts || s.specRead || s.spec.Quorum {
		return nil
	}
	return fmt.Errorf("message %q was delivered with the header %s: the queue is a quorum queue, and Spec says that it is not; such a queue may drop messages "+
		"at its delivery limit, even if no handler failed. Set Spec.Quorum, DeliveryLimit and DeadLetters as the queue has them, or grant this user "+
		"configure on the queue, so that they can be read", raw.MessageId, headerDeliveries)
}
