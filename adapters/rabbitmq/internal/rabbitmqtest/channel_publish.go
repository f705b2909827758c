package rabbitmqtest

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// Publish is a message that a client sends.
type Publish struct {
	Exchange  string
	Key       string
	Mandatory bool
	Message   amqp.Publishing
}

// Fate is what becomes of a message that a client sends.
type Fate int

// What can become of a message.
const (
	Take        Fate = iota // as usual
	Nack                    // it is not taken, and the client is told so
	Withhold                // it is taken, and not confirmed until Release, if ever
	CutBefore               // it is not taken, and the connection is cut
	CutAfter                // it is taken, and the connection is cut before the client is told
	Refuse                  // it is not taken, and its channel is closed with ACCESS_REFUSED (403)
	NackButTake             // it is taken, and the client is told that it is not: some of its queues had no room
)

// OnPublish makes decide choose the fate of each message. decide must not call the Server. nil: the server takes all
// messages.
func (s *Server) OnPublish(decide func(Publish) Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
}

// Release sends the confirms that were withheld, the last one first.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held
	s.held = nil
	for i := len(held) - 1; i >= 0; i-- {
		held[i]()
	}
}

// Confirm implements rabbitmq.Channel.
func (ch *channel) Confirm(bool) error {
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		ch.confirming = true
		return none, nil
	})
	if err == nil {
		ch.selected.Store(true)
	}
	return err
}

// PublishWithDeferredConfirm implements rabbitmq.Channel.
func (ch *channel) PublishWithDeferredConfirm(exchange, key string, mandatory, immediate bool,
	msg amqp.Publishing,
) (rabbitmq.Confirm, error) {
	if err := msg.Headers.Validate(); err != nil {
		return nil, err
	}
	p := Publish{exchange, key, mandatory, copied(msg)}
	header, err := frame(&p)
	ch.sending.Lock()
	defer ch.sending.Unlock()
	if err != nil { // amqp091-go has begun to write by then
		go ch.c.breakOff(&amqp.Error{Code: amqp.FrameError, Reason: err.Error()})
		return nil, err
	}
	receive := func() *amqp.Error { return ch.receive(p, header, immediate) }
	if !ch.selected.Load() {
		return nil, ch.cast(header+len(msg.Body), receive)
	}
	c, tag, err := ch.expect()
	if err != nil {
		return nil, err
	}
	if err := ch.cast(header+len(msg.Body), receive); err != nil {
		ch.notify.Lock()
		defer ch.notify.Unlock()
		delete(ch.confirms, tag)
		ch.published--
		return nil, err
	}
	return c, nil
}

// confirm is the client's side of a confirm.
type confirm struct {
	done chan struct{}
	ack  bool // set before done is closed
}

// Done implements rabbitmq.Confirm.
func (c *confirm) Done() <-chan struct{} { return c.done }

// Acked implements rabbitmq.Confirm.
func (c *confirm) Acked() bool {
	select {
	case <-c.done:
		return c.ack
	default:
		return false
	}
}

// expect numbers the next message.
func (ch *channel) expect() (*confirm, uint64, error) {
	ch.notify.Lock()
	defer ch.notify.Unlock()
	if ch.over {
		return nil, 0, amqp.ErrClosed
	}
	ch.published++
	c := &confirm{done: make(chan struct{})}
	ch.confirms[ch.published] = c
	return c, ch.published, nil
}

// receive handles p in the server.
func (ch *channel) receive(p Publish, header int, immediate bool) *amqp.Error {
	c, s := ch.c, ch.c.s
	if s.alarm != "" && !c.blocked {
		c.blocked = true
		reason := s.alarm
		c.push(func() { c.notifyBlocked(amqp.Blocking{Active: true, Reason: reason}) })
		c.inbox = append([]func(){func() {
			if ch.gone {
				return
			}
			if err := ch.receive(p, header, immediate); err != nil {
				ch.fail(err)
			}
		}}, c.inbox...)
		return nil
	}
	if header > s.cfg.FrameBytes {
		c.drop(&amqp.Error{Code: amqp.FrameError, Reason: fmt.Sprintf(
			"FRAME_ERROR - type 2, all octets = <<>>: {frame_too_large,%d,%d}", header,
			s.cfg.FrameBytes-8), Server: true})
		return nil
	}
	e, err := ch.accept(&p, immediate)
	if err != nil {
		return err
	}
	fate := Take
	if s.decide != nil {
		fate = s.decide(p)
	}
	ack := false
	switch fate {
	case Refuse:
		return refuse(amqp.AccessRefused, "ACCESS_REFUSED - access to exchange '%s' in vhost '/' refused for user 'guest'", p.Exchange)
	case CutBefore:
		c.drop(errReset)
		return nil
	case Nack:
	default:
		ack = ch.route(e, p) && fate != NackButTake
	}
	if fate == CutAfter {
		c.drop(errReset)
		return nil
	}
	if !ch.confirming {
		return nil
	}
	ch.seq++
	answer := amqp.Confirmation{DeliveryTag: ch.seq, Ack: ack}
	if fate == Withhold {
		s.held = append(s.held, func() { ch.confirm(answer) })
		return nil
	}
	ch.confirm(answer)
	return nil
}

// accept checks p, and finds its exchange.
func (ch *channel) accept(p *Publish, immediate bool) (*exchange, *amqp.Error) {
	s := ch.c.s
	if immediate {
		return nil, refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - immediate=true")
	}
	if n := len(p.Message.Body); n > s.cfg.MaxMessageBytes {
		return nil, refuse(amqp.PreconditionFailed,
			"PRECONDITION_FAILED - message size %d is larger than configured max size %d", n, s.cfg.MaxMessageBytes)
	}
	e := s.exchanges[p.Exchange]
	if e == nil {
		return nil, refuse(amqp.NotFound, "NOT_FOUND - no exchange '%s' in vhost '/'", p.Exchange)
	}
	if err := s.permit("write", "exchange", p.Exchange); err != nil {
		return nil, err
	}
	if e.internal {
		return nil, refuse(amqp.AccessRefused, "ACCESS_REFUSED - cannot publish to internal exchange '%s' in vhost '/'",
			p.Exchange)
	}
	if u := p.Message.UserId; u != "" && u != "guest" {
		return nil, refuse(amqp.PreconditionFailed,
			"PRECONDITION_FAILED - user_id property set to '%s' but authenticated user was 'guest'", u)
	}
	if x := p.Message.Expiration; x != "" {
		if _, ok := expiration(x); !ok {
			return nil, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid expiration '%s'", x)
		}
	}
	return e, nil
}

// route puts p into its queues, or returns it to the client. It reports whether all queues took p.
func (ch *channel) route(e *exchange, p Publish) bool {
	queues := ch.c.s.route(e, p.Key, nil)
	if len(queues) == 0 && p.Mandatory {
		back := p.returned()
		ch.c.push(func() {
			ch.notify.Lock()
			returns := ch.returns
			ch.notify.Unlock()
			notifyAll(returns, back)
		})
	}
	all := true
	for _, q := range queues {
		all = q.put(&message{p: copied(p.Message), exchange: p.Exchange, key: p.Key}) && all
	}
	return all
}

// confirm sends the client the confirm of a message.
func (ch *channel) confirm(answer amqp.Confirmation) {
	ch.c.push(func() {
		ch.notify.Lock()
		defer ch.notify.Unlock()
		if c := ch.confirms[answer.DeliveryTag]; c != nil {
			delete(ch.confirms, answer.DeliveryTag)
			c.ack = answer.Ack
			close(c.done)
		}
	})
}

func (p Publish) returned() amqp.Return {
	m := p.Message
	return amqp.Return{
		ReplyCode: amqp.NoRoute, ReplyText: "NO_ROUTE", Exchange: p.Exchange, RoutingKey: p.Key,
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Headers: m.Headers,
		DeliveryMode: m.DeliveryMode, Priority: m.Priority,
		CorrelationId: m.CorrelationId, ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageId,
		Timestamp: m.Timestamp,
		Type:      m.Type, UserId: m.UserId, AppId: m.AppId, Body: m.Body,
	}
}
