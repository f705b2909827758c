package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A passive declaration does not return a queue's arguments. But the server refuses a declaration whose arguments
// differ from the queue's, and names one that differs, with its value. So readSpec declares the queue again and again,
// each time with one more correct argument.

// inequivalent is the reason that RabbitMQ gives when it refuses a declaration.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*but current is (none|'(\w+)'|the value '(.*)' of type '(\w+)')$`)

// maxArgs is the maximum number of declarations. RabbitMQ has fewer arguments.
const maxArgs = 40

// readSpec returns q with the arguments of an existing queue. It begins with those of q. read is false when the user
// may not configure the queue, or when the server's reason is not understood. A stream is an error.
func readSpec(conn Connection, queue string, q QueueSpec, version string) (_ QueueSpec, read bool, err error) {
	args := q.args(version)
	durable, autoDelete := true, false
	for range maxArgs {
		ch, err := conn.Channel()
		if err != nil {
			return q, false, err
		}
		_, err = ch.QueueDeclare(queue, durable, autoDelete, false, false, args)
		if err == nil {
			q = q.withArgs(args)
			q.autoDelete, q.transient = autoDelete, !durable
			return q, true, ch.Close()
		}
		var refused *amqp.Error
		if !errors.As(err, &refused) || !ofChannel(err) {
			return q, false, err
		}
		found := inequivalent.FindStringSubmatch(refused.Reason)
		if found == nil {
			return q, false, nil
		}
		name, none, flag, value, kind := found[1], found[2] == "none", found[3] == "true", cmp.Or(found[3], found[4]),
			found[5]
		switch {
		case name == "durable":
			durable = flag
		case name == "auto_delete":
			autoDelete = flag
		case name == "x-queue-type" && value == "stream":
			return q, false, fatalError{errStream}
		case none:
			delete(args, name)
		default:
			args[name] = argument(value, kind)
		}
	}
	return q, false, nil
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

// withArgs returns q with the values of the queue's arguments, in its fields and all of them in Args. Missing arguments
// may be set by a policy, so those of q stay as they are.
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
	all := amqp.Table{}
	maps.Copy(all, q.Args)
	maps.Copy(all, args)
	q.Args = all
	return q
}

// checkSpec reads the queue's arguments, if it can, and refuses a queue that is not safe although Spec says that it is.
// It returns c with the arguments in Spec, and whether they were read or compared by the server.
func (c SubscriberConfig) checkSpec(conn Connection, version string) (_ SubscriberConfig, read bool, err error) {
	if c.Declare { // the server has compared them
		return c, true, nil
	}
	if c.Spec, read, err = readSpec(conn, c.Queue, c.Spec, version); err != nil {
		return c, false, err
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

// checkKind refuses a delivery that shows that the queue is a stream, or a quorum queue although Spec says otherwise,
// when its arguments could not be read.
func (s *session) checkKind(raw *amqp.Delivery) error {
	if _, streams := raw.Headers[headerOffset]; streams && !s.specRead {
		return fmt.Errorf("message %q was delivered with the header %s: %w. If it is no stream, grant this user configure on the queue, so that its arguments can be read",
			raw.MessageId, headerOffset, errStream)
	}
	_, counts := number(raw.Headers[headerDeliveries])
	if !counts || s.specRead || s.spec.Quorum {
		return nil
	}
	return fmt.Errorf("message %q was delivered with the header %s: the queue is a quorum queue, and Spec says that it is not; such a queue may drop messages "+
		"at its delivery limit, even if no handler failed. Set Spec.Quorum, DeliveryLimit and DeadLetters as the queue has them, or grant this user "+
		"configure on the queue, so that they can be read", raw.MessageId, headerDeliveries)
}
