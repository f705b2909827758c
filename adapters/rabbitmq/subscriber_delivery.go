package rabbitmq

import (
	"cmp"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// delivery is one delivery of a message.
type delivery struct {
	session *session
	raw     *amqp.Delivery
	msg     *consumer.Message
	attempt int // on arrival
	since   time.Time
	warned  bool // guarded by session.mu
	copied  bool // its copy is on its way; guarded by retries.mu
}

// expires reports whether the server drops d, or moves it to the dead letter exchange, when it goes back too late: its
// time counts from its first arrival.
func (d *delivery) expires() bool { return d.raw.Expiration != "" }

// ack acknowledges d, unless its channel is closed: then d is delivered again, as a duplicate. It reports whether it
// did.
func (s *session) ack(d *delivery) bool {
	if !s.forget(d) {
		return false
	}
	if err := s.ch.Ack(d.raw.DeliveryTag, false); err != nil {
		// else the server might wait for it until the channel is closed
		_ = s.conn.CloseDeadline(time.Now().Add(closesWithin))
		return false
	}
	return true
}

// giveBack makes the server deliver d again at once. A copy replaces a message that expires, because the server might
// drop it.
func (s *session) giveBack(d *delivery) {
	if d.expires() {
		if s.holds(d) {
			s.run.retries.add(&deferral{delivery: d, attempt: d.attempt})
		}
		return
	}
	if s.forget(d) {
		_ = s.ch.Nack(d.raw.DeliveryTag, false, true)
	}
}

// giveBackExpiring gives back the messages in flight that expire, because the end of the channel would give them back
// as they are.
func (s *session) giveBackExpiring() {
	s.mu.Lock()
	inFlight := maps.Clone(s.inFlight)
	s.mu.Unlock()
	for _, tag := range slices.Sorted(maps.Keys(inFlight)) {
		if d := inFlight[tag].Raw.(*delivery); d.expires() {
			s.giveBack(d)
		}
	}
}

// holds reports whether d is not settled and its channel is open.
func (s *session) holds(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, inFlight := s.inFlight[d.raw.DeliveryTag]
	return inFlight && !s.dead
}

// forget reports whether d may be settled. It does that once for each delivery.
func (s *session) forget(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, inFlight := s.inFlight[d.raw.DeliveryTag]
	delete(s.inFlight, d.raw.DeliveryTag)
	return inFlight && !s.dead
}

// warnOfExpiration warns once that the server may drop messages like d.
func (s *session) warnOfExpiration(d *delivery) {
	if !d.expires() || s.spec.DeadLetters != nil {
		return
	}
	lost := "the connection is lost or this process crashes"
	if s.run.cfg.Ordered {
		lost += " or Run ends"
	}
	s.run.expiring.Do(func() {
		s.run.log.Warn("rabbitmq: a message has an expiration, and the queue has no dead letter exchange: if "+lost+
			" before the message is handled, it goes back to the "+
			"queue, and RabbitMQ drops it when its expiration is over, counted from its first arrival; publish without expiration, or give the queue a "+
			"dead letter exchange (Spec.DeadLetters)", "position", d.msg.Position, "expiration", d.raw.Expiration)
	})
}

// watchAge acts on each message that comes near the server's timeout, at which the server closes the channel and takes
// all messages back. The message alone goes back before that. Its handler goes on, and when it commits, the new
// delivery is a duplicate. In Ordered mode it stays: the messages behind it would overtake it.
func (s *session) watchAge() {
	s.mu.Lock()
	var old []*deliver.Delivery
	for _, unsettled := range s.inFlight {
		d := unsettled.Raw.(*delivery)
		if time.Since(d.since) > s.run.cfg.ConsumerTimeout*4/5 && !d.warned {
			d.warned = true
			old = append(old, unsettled)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(old, func(a, b *deliver.Delivery) int {
		return cmp.Compare(a.Raw.(*delivery).raw.DeliveryTag, b.Raw.(*delivery).raw.DeliveryTag)
	})
	if len(old) == 0 {
		return
	}
	follows := "they go back to the queue alone, and their handlers go on: when those commit, the next deliveries are duplicates"
	if s.run.cfg.Ordered {
		follows = "soon the server closes the channel because of consumer_timeout and delivers all its messages again"
	}
	first := old[0].Raw.(*delivery)
	s.run.log.Warn("rabbitmq: messages are not finished: "+follows+
		"; make handlers shorter, Prefetch smaller, or consumer_timeout longer",
		"first", first.msg.Position, "messages", len(old), "age", time.Since(first.since).Round(time.Millisecond),
		"consumer_timeout", s.run.cfg.ConsumerTimeout)
	for _, unsettled := range old {
		d := unsettled.Raw.(*delivery)
		if !s.run.cfg.Ordered {
			s.giveBack(d)
			s.run.deliverer.Withdraw(unsettled)
		}
	}
}
