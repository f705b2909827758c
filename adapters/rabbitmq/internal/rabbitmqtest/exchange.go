package rabbitmqtest

import (
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

type exchange struct {
	name       string
	kind       string
	durable    bool
	autoDelete bool
	internal   bool
	alternate  string // the exchange for messages that it cannot route
	bindings   []binding
}

type binding struct {
	key string
	q   *queue
}

// route lists the queues that a message with key goes to through e, each once.
func (s *Server) route(e *exchange, key string, passed []*exchange) (queues []*queue) {
	if e.name == "" {
		if q := s.queues[key]; q != nil {
			return []*queue{q}
		}
		return nil
	}
	for _, b := range e.bindings {
		if e.leads(b.key, key) && !slices.Contains(queues, b.q) {
			queues = append(queues, b.q)
		}
	}
	if next := s.exchanges[e.alternate]; len(queues) == 0 && e.alternate != "" && next != nil &&
		!slices.Contains(passed, next) {
		return s.route(next, key, append(passed, e))
	}
	return queues
}

func (e *exchange) leads(bound, key string) bool {
	switch e.kind {
	case amqp.ExchangeFanout:
		return true
	case amqp.ExchangeTopic:
		return matches(strings.Split(bound, "."), strings.Split(key, "."))
	default:
		return bound == key
	}
}

// matches reports whether words match pattern: * matches one word, and # any number of words.
func matches(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return matches(pattern[1:], words) || len(words) > 0 && matches(pattern, words[1:])
	case len(words) == 0:
		return false
	default:
		return (pattern[0] == "*" || pattern[0] == words[0]) && matches(pattern[1:], words[1:])
	}
}

// ExchangeDeclare implements rabbitmq.Channel.
func (ch *channel) ExchangeDeclare(name, kind string, durable, autoDelete, internal, _ bool, args amqp.Table) error {
	if err := args.Validate(); err != nil {
		return err
	}
	want := &exchange{name: name, kind: kind, durable: durable, autoDelete: autoDelete, internal: internal}
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) { return none, ch.declareExchange(want, args) })
	return err
}

func (ch *channel) declareExchange(want *exchange, args amqp.Table) *amqp.Error {
	s := ch.c.s
	for name, v := range args {
		text, ok := v.(string)
		if name != "alternate-exchange" || !ok {
			return refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - rabbitmqtest: exchange argument '%s'", name)
		}
		want.alternate = text
	}
	if err := s.permit("configure", "exchange", want.name); err != nil {
		return err
	}
	have := s.exchanges[want.name]
	if have == nil {
		switch {
		case strings.HasPrefix(want.name, "amq."):
			return refuse(amqp.AccessRefused, "ACCESS_REFUSED - exchange name '%s' contains reserved prefix 'amq.*'",
				want.name)
		case !slices.Contains([]string{amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeTopic}, want.kind):
			return refuse(amqp.CommandInvalid, "COMMAND_INVALID - unknown exchange type '%s'", want.kind)
		}
		s.exchanges[want.name] = want
		return nil
	}
	if want.name == "" {
		return refuse(amqp.AccessRefused, "ACCESS_REFUSED - operation not permitted on the default exchange")
	}
	for _, arg := range []struct {
		name       string
		want, have any
	}{
		{"type", want.kind, have.kind},
		{"durable", want.durable, have.durable},
		{"auto_delete", want.autoDelete, have.autoDelete},
		{"internal", want.internal, have.internal},
		{"alternate-exchange", want.alternate, have.alternate},
	} {
		if arg.want != arg.have {
			return refuse(amqp.PreconditionFailed,
				"PRECONDITION_FAILED - inequivalent arg '%s' for exchange '%s' in vhost '/': received '%v' but current is '%v'",
				arg.name, want.name, arg.want, arg.have)
		}
	}
	return nil
}

// ExchangeDeclarePassive implements rabbitmq.Channel.
func (ch *channel) ExchangeDeclarePassive(name, _ string, _, _, _, _ bool, _ amqp.Table) error {
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		_, err := ch.c.s.exchange(name)
		return none, err
	})
	return err
}

func (s *Server) exchange(name string) (*exchange, *amqp.Error) {
	if e := s.exchanges[name]; e != nil {
		return e, nil
	}
	return nil, refuse(amqp.NotFound, "NOT_FOUND - no exchange '%s' in vhost '/'", name)
}

// QueueBind implements rabbitmq.Channel.
func (ch *channel) QueueBind(name, key, from string, _ bool, args amqp.Table) error {
	if err := args.Validate(); err != nil {
		return err
	}
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) { return none, ch.bind(name, key, from) })
	return err
}

func (ch *channel) bind(name, key, from string) *amqp.Error {
	s := ch.c.s
	q, err := s.queue(name, ch.c)
	if err != nil {
		return err
	}
	e, err := s.exchange(from)
	if err != nil {
		return err
	}
	if from == "" {
		return refuse(amqp.AccessRefused, "ACCESS_REFUSED - operation not permitted on the default exchange")
	}
	if err := s.permit("write", "queue", name); err != nil {
		return err
	}
	if err := s.permit("read", "exchange", from); err != nil {
		return err
	}
	if b := (binding{key, q}); !slices.Contains(e.bindings, b) {
		e.bindings = append(e.bindings, b)
	}
	return nil
}

// unbind removes the bindings of a deleted queue.
func (s *Server) unbind(q *queue) {
	for _, e := range s.exchanges {
		n := len(e.bindings)
		e.bindings = slices.DeleteFunc(e.bindings, func(b binding) bool { return b.q == q })
		if e.autoDelete && n > 0 && len(e.bindings) == 0 {
			delete(s.exchanges, e.name)
		}
	}
}
