package rabbitmqtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queueArgs are the settings in the arguments of a queue.
type queueArgs struct {
	args      amqp.Table
	quorum    bool
	limit     int           // of deliveries that come back; -1: none
	ttl       time.Duration // -1: none
	expires   time.Duration // 0: never
	maxLength int           // -1: none
	overflow  string
	deadLets  *string // the dead letter exchange; nil: none
	deadKey   *string // nil: the message's own
	single    bool    // active consumer
}

// readArgs parses the arguments of queue name.
func (s *Server) readArgs(name string, args amqp.Table) (a queueArgs, _ *amqp.Error) {
	a = queueArgs{args: table(args), limit: -1, ttl: -1, maxLength: -1, overflow: "drop-head"}
	quorum := args["x-queue-type"] == "quorum"
	if quorum && s.cfg.DeliveryLimit > 0 {
		a.limit = s.cfg.DeliveryLimit
	}
	for arg, v := range args {
		n, isNumber := number(v)
		text, isText := v.(string)
		var fits bool
		switch arg {
		case "x-queue-type":
			fits = text == "classic" || text == "quorum"
			a.quorum = quorum
		case "x-delivery-limit":
			fits = isNumber && quorum
			a.limit = max(int(n), -1)
		case "x-message-ttl":
			fits = isNumber && n >= 0
			a.ttl = time.Duration(n) * time.Millisecond
		case "x-expires":
			fits = isNumber && n > 0
			a.expires = time.Duration(n) * time.Millisecond
		case "x-max-length":
			fits = isNumber && n >= 0
			a.maxLength = int(n)
		case "x-overflow":
			fits = slices.Contains([]string{"drop-head", "reject-publish", "reject-publish-dlx"}, text)
			a.overflow = text
		case "x-dead-letter-strategy": // either is safe here
			fits = quorum && (text == "at-most-once" || text == "at-least-once")
		case "x-dead-letter-exchange":
			fits = isText
			a.deadLets = &text
		case "x-dead-letter-routing-key":
			fits = isText
			a.deadKey = &text
		case "x-single-active-consumer":
			a.single, fits = v.(bool)
		default:
			return a, refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - rabbitmqtest: argument '%s' of queue '%s'",
				arg, name)
		}
		if !fits {
			return a, refuse(amqp.PreconditionFailed,
				"PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/': %v", arg, name, v)
		}
	}
	if a.deadKey != nil && a.deadLets == nil {
		return a, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue '%s' in vhost '/': "+
			"routing_key_but_no_dlx_defined", name)
	}
	return a, nil
}

func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case byte:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	default:
		return 0, false
	}
}

// QueueDeclare implements rabbitmq.Channel.
func (ch *channel) QueueDeclare(name string, durable, autoDelete, exclusive, _ bool,
	args amqp.Table,
) (amqp.Queue, error) {
	if err := args.Validate(); err != nil {
		return amqp.Queue{}, err
	}
	want := &queue{s: ch.c.s, name: name, durable: durable, autoDelete: autoDelete}
	if exclusive {
		want.owner = ch.c
	}
	return call(ch, func() (amqp.Queue, *amqp.Error) {
		q, err := ch.declareQueue(want, args)
		return q.state(), err
	})
}

func (ch *channel) declareQueue(want *queue, args amqp.Table) (*queue, *amqp.Error) {
	s := ch.c.s
	var err *amqp.Error
	if want.queueArgs, err = s.readArgs(want.name, args); err != nil {
		return nil, err
	}
	switch {
	case want.name == "":
		want.name = s.name("amq.gen-")
	case s.queues[want.name] != nil:
		have, err := s.queue(want.name, ch.c)
		if err != nil {
			return nil, err
		}
		if err := s.permit("configure", "queue", want.name); err != nil {
			return nil, err
		}
		have.used()
		return have, have.differs(want)
	case strings.HasPrefix(want.name, "amq."):
		return nil, refuse(amqp.AccessRefused, "ACCESS_REFUSED - queue name '%s' contains reserved prefix 'amq.*'",
			want.name)
	}
	if err := s.permit("configure", "queue", want.name); err != nil {
		return nil, err
	}
	if want.quorum {
		for property, wrong := range map[string]bool{
			"non-durable": !want.durable, "auto-delete": want.autoDelete,
			"exclusive": want.owner != nil,
		} {
			if wrong {
				return nil, refuse(amqp.PreconditionFailed,
					"PRECONDITION_FAILED - invalid property '%s' for queue '%s' in vhost '/'", property, want.name)
			}
		}
	}
	s.queues[want.name] = want
	want.used()
	return want, nil
}

// differs returns an error if q is not equal to want.
func (q *queue) differs(want *queue) *amqp.Error {
	unlike := func(arg, received, current string) *amqp.Error {
		return refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg '%s' for queue '%s' in vhost '/': received %s but current is %s",
			arg, q.name, received, current)
	}
	for _, p := range []struct {
		name       string
		want, have bool
	}{
		{"durable", want.durable, q.durable},
		{"auto_delete", want.autoDelete, q.autoDelete},
		{"exclusive", want.owner != nil, q.owner != nil},
	} {
		if p.want != p.have {
			return unlike(p.name, fmt.Sprintf("'%v'", p.want), fmt.Sprintf("'%v'", p.have))
		}
	}
	for _, arg := range []string{
		"x-queue-type", "x-delivery-limit", "x-message-ttl", "x-expires", "x-max-length", "x-overflow",
		"x-dead-letter-strategy", "x-dead-letter-exchange",
		"x-dead-letter-routing-key", "x-single-active-consumer",
	} {
		wanted, got := described(arg, want.args), described(arg, q.args)
		if wanted != got {
			return unlike(arg, wanted, got)
		}
	}
	return nil
}

// described returns an argument as RabbitMQ writes it in an error.
func described(arg string, args amqp.Table) string {
	v, ok := args[arg]
	if arg == "x-queue-type" && !ok {
		v, ok = "classic", true
	}
	if n, isNumber := number(v); isNumber {
		return fmt.Sprintf("the value '%d' of type 'signedint'", n)
	}
	if !ok {
		return "none"
	}
	if flag, isFlag := v.(bool); isFlag {
		return fmt.Sprintf("the value '%v' of type 'bool'", flag)
	}
	return fmt.Sprintf("the value '%v' of type 'longstr'", v)
}

// QueueDeclarePassive implements rabbitmq.Channel.
func (ch *channel) QueueDeclarePassive(name string, _, _, _, _ bool, _ amqp.Table) (amqp.Queue, error) {
	return call(ch, func() (amqp.Queue, *amqp.Error) {
		q, err := ch.c.s.queue(name, ch.c)
		if q != nil {
			q.used()
		}
		return q.state(), err
	})
}

// queue finds a queue for a client on c.
func (s *Server) queue(name string, c *conn) (*queue, *amqp.Error) {
	q := s.queues[name]
	if q == nil {
		return nil, refuse(amqp.NotFound, "NOT_FOUND - no queue '%s' in vhost '/'", name)
	}
	if q.owner != nil && q.owner != c {
		return nil, refuse(amqp.ResourceLocked, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'. "+
			"It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", name)
	}
	return q, nil
}

// state is the answer to a client's declaration of q; nil q: the zero value.
func (q *queue) state() amqp.Queue {
	if q == nil {
		return amqp.Queue{}
	}
	return amqp.Queue{Name: q.name, Messages: len(q.ready), Consumers: len(q.consumers)}
}

// name returns a new name with that prefix.
func (s *Server) name(prefix string) string {
	s.names++
	return fmt.Sprintf("%s%d", prefix, s.names)
}
