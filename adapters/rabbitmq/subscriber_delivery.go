package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/consumer"
)

// delivery is one delivery of a message.
type delivery struct {
	session *session
	raw     *amqp.Delivery
	msg     *consumer.Message
	attempt int // on arrival
	since   time.Time
	warned  bool // guarded by session.mu
}

// ack acknowledges d, unless its channel is closed: then d is delivered again, as a duplicate. It reports whether it did.
func (s *session) ack(d *delivery) bool {
	if !s.forget(d) {
		return false
	}
	if err := s.ch.Ack(d.raw.DeliveryTag, false); err != nil {
		_ = s.conn.CloseDeadline(time.Now().Add(closesWithin)) // else the server might wait for it until the channel is closed
		return false
	}
	return true
}

// giveBack makes the server deliver d again at once.
func (s *session) giveBack(d *delivery) {
	if s.forget(d) {
		_ = s.ch.Nack(d.raw.DeliveryTag, false, true)
	}
}

// forget reports whether d may be settled. It does that once for each delivery.
func (s *session) forget(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, inFlight := s.inFlight[d.raw.DeliveryTag]
	delete(s.inFlight, d.raw.DeliveryTag)
	return inFlight && !s.dead
}

// warnOfAge warns once about each message that comes near the server's timeout.
func (s *session) warnOfAge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, unsettled := range s.inFlight {
		d := unsettled.Raw.(*delivery)
		if age := time.Since(d.since); age > s.run.cfg.ConsumerTimeout*4/5 && !d.warned {
			d.warned = true
			s.run.log.Warn("rabbitmq: a message is not finished, and soon the server closes the channel because of consumer_timeout and delivers all its messages again; "+
				"make handlers shorter, Prefetch smaller, or consumer_timeout longer", "position", d.msg.Position, "age", age.Round(time.Millisecond),
				"consumer_timeout", s.run.cfg.ConsumerTimeout)
		}
	}
}
