package rabbitmqtest

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
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
	Withhold                // it is taken, and the client is not told until Release, or ever
	CutBefore               // it is not taken, and the connection is cut
	CutAfter                // it is taken, and the connection is cut before the client is told
	Refuse                  // it is not taken, and its channel is closed with ACCESS_REFUSED (403)
	NackButTake             // it is taken, and the client is told that it is not: some of its queues had no room
)

// OnPublish lets decide say what becomes of each message. It must not call the Server. nil: all are taken.
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

// GetNextPublishSeqNo implements rabbitmq.Channel.
func (ch *channel) GetNextPublishSeqNo() uint64 {
	return ch.published.Load() + 1
}

// PublishWithContext implements rabbitmq.Channel. ctx is looked at once, before.
func (ch *channel) PublishWithContext(ctx context.Context, exchange, key string, mandatory, immediate bool, msg amqp.Publishing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := msg.Headers.Validate(); err != nil {
		return err
	}
	p := Publish{exchange, key, mandatory, copied(msg)}
	header, err := frame(&p)
	ch.sending.Lock()
	defer ch.sending.Unlock()
	if err != nil { // amqp091-go has begun to write by then
		go ch.c.breakOff(&amqp.Error{Code: amqp.FrameError, Reason: err.Error()})
		return err
	}
	if ch.selected.Load() {
		ch.published.Add(1)
	}
	err = ch.cast(header+len(msg.Body), func() *amqp.Error { return ch.receive(p, header, immediate) })
	if err != nil && ch.selected.Load() {
		ch.published.Add(^uint64(0))
	}
	return err
}

// receive is the server that gets p.
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
			"FRAME_ERROR - type 2, all octets = <<>>: {frame_too_large,%d,%d}", header, s.cfg.FrameBytes-8), Server: true})
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
		return nil, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - message size %d is larger than configured max size %d", n, s.cfg.MaxMessageBytes)
	}
	e := s.exchanges[p.Exchange]
	if e == nil {
		return nil, refuse(amqp.NotFound, "NOT_FOUND - no exchange '%s' in vhost '/'", p.Exchange)
	}
	if err := s.permit("write", "exchange", p.Exchange); err != nil {
		return nil, err
	}
	if e.internal {
		return nil, refuse(amqp.AccessRefused, "ACCESS_REFUSED - cannot publish to internal exchange '%s' in vhost '/'", p.Exchange)
	}
	if u := p.Message.UserId; u != "" && u != "guest" {
		return nil, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - user_id property set to '%s' but authenticated user was 'guest'", u)
	}
	if x := p.Message.Expiration; x != "" {
		if _, ok := expiration(x); !ok {
			return nil, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid expiration '%s'", x)
		}
	}
	return e, nil
}

// route puts p into its queues, or returns it. It says whether all of them took it.
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

// confirm tells the client about a message. amqp091-go brings what comes out of order back into it.
func (ch *channel) confirm(answer amqp.Confirmation) {
	ch.c.push(func() {
		ch.notify.Lock()
		if ch.over {
			ch.notify.Unlock()
			return
		}
		ch.early[answer.DeliveryTag] = answer.Ack
		var next []amqp.Confirmation
		for {
			ack, ok := ch.early[ch.expected]
			if !ok {
				break
			}
			delete(ch.early, ch.expected)
			next = append(next, amqp.Confirmation{DeliveryTag: ch.expected, Ack: ack})
			ch.expected++
		}
		confirms := ch.confirms
		ch.notify.Unlock()
		for _, n := range next {
			notifyAll(confirms, n)
		}
	})
}

func (p Publish) returned() amqp.Return {
	m := p.Message
	return amqp.Return{
		ReplyCode: amqp.NoRoute, ReplyText: "NO_ROUTE", Exchange: p.Exchange, RoutingKey: p.Key,
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Headers: m.Headers, DeliveryMode: m.DeliveryMode, Priority: m.Priority,
		CorrelationId: m.CorrelationId, ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageId, Timestamp: m.Timestamp,
		Type: m.Type, UserId: m.UserId, AppId: m.AppId, Body: m.Body,
	}
}
