package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

const (
	consumerTag  = "txonce" // tags are the channel's own
	closesWithin = 5 * time.Second

	cancelsWithin = time.Second
)

// session is one channel that consumes, from its opening to its end. What it has delivered is settled on it or not at all.
type session struct {
	*run
	conn       Connection
	ch         Channel
	spec       QueueSpec // what the queue is like
	read       bool      // spec was read or compared, not only believed
	deliveries <-chan amqp.Delivery
	cancels    chan string
	gone       chan struct{} // closed when the channel is, and all that it held is lost
	why        error         // then

	mu   sync.Mutex
	dead bool
	held map[uint64]*deliver.Delivery // delivered and not settled, by tag
}

// delivery is one arrival of a message.
type delivery struct {
	session *session
	raw     *amqp.Delivery
	msg     *consumer.Message
	attempt int // as it arrived
	since   time.Time
	warned  bool
}

// open connects and begins to consume. While it does so the end of the run cuts the connection, for amqp091-go knows no contexts.
func (r *run) open() (_ *session, err error) {
	limited, cancel := context.WithTimeout(r.deliverer.Context(), dialWithin)
	defer cancel()
	conn, err := r.cfg.Dial(limited)
	if err != nil {
		return nil, err
	}
	hurried := context.AfterFunc(limited, func() { _ = conn.CloseDeadline(time.Now()) })
	defer func() {
		if !hurried() && err == nil {
			err = limited.Err()
		}
		if err != nil {
			_ = conn.CloseDeadline(time.Now().Add(closesWithin))
		}
	}()
	version := ""
	if v, ok := conn.(interface{ version() string }); ok {
		version = v.version()
	}
	s := &session{
		run: r, conn: conn, gone: make(chan struct{}), held: map[uint64]*deliver.Delivery{},
	}
	if s.ch, err = conn.Channel(); err != nil {
		return nil, err
	}
	s.cancels = s.ch.NotifyCancel(make(chan string, 1))
	closes := s.ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := r.cfg.declare(s.ch, version); err != nil {
		return nil, err
	}
	cfg, read, err := r.cfg.checkSpec(conn, version)
	if err != nil {
		return nil, err
	}
	s.spec, s.read = cfg.Spec, read
	r.said.Do(func() { cfg.sayAllowed(version) })
	if err := s.ch.Qos(r.cfg.Prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("prefetch: %w", err)
	}
	// Not with a context that ends: amqp091-go would cancel the consumer when it ends, and in Ordered mode let another process overtake us.
	s.deliveries, err = s.ch.ConsumeWithContext(context.WithoutCancel(limited), r.cfg.Queue, consumerTag, false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	if f := r.cfg.Trace.Consuming; f != nil {
		f()
	}
	go s.guard(closes)
	return s, nil
}

// guard waits for the end of the channel. What it held is nobody's then: handlers are cancelled, and nothing is acknowledged.
func (s *session) guard(closes <-chan *amqp.Error) {
	defer close(s.gone)
	s.why = amqp.ErrClosed
	if err := <-closes; err != nil {
		s.why = err
	}
	s.mu.Lock()
	s.dead = true
	var tags []uint64
	for tag := range s.held {
		tags = append(tags, tag)
	}
	held := s.held
	s.held = nil
	s.mu.Unlock()
	slices.Sort(tags)
	for _, tag := range tags {
		s.deliverer.Lose(held[tag])
	}
	if f := s.cfg.Trace.Lost; f != nil && s.deliverer.Context().Err() == nil {
		f(s.why, len(tags))
	}
}

// errCancelled is why a session ends whose consumer the server has cancelled.
var errCancelled = errors.New("the server has cancelled the consumer, as it does when a queue is deleted or moves")

// serve takes deliveries in until the channel is gone, with the reason, or nothing more is to be begun.
func (s *session) serve() error {
	ticker := time.NewTicker(max(s.cfg.ConsumerTimeout/100, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case raw, open := <-s.deliveries:
			if !open {
				return s.ended()
			}
			s.take(&raw)
		case <-ticker.C:
			s.watchAges()
		case <-s.deliverer.Context().Done():
			return nil
		}
	}
}

// ended is why there are no more deliveries.
func (s *session) ended() error {
	select {
	case _, cancelled := <-s.cancels:
		if cancelled {
			return errCancelled
		}
	default:
	}
	timer := time.NewTimer(closesWithin)
	defer timer.Stop()
	select {
	case <-s.gone:
		return s.why
	case <-timer.C:
		return errCancelled
	}
}

// take hands raw on.
func (s *session) take(raw *amqp.Delivery) {
	if err := s.counted(raw); err != nil {
		s.deliverer.Fail(err) // it goes back when the channel is closed
		return
	}
	msg := toMessage(s.cfg.Queue, raw)
	dl := &delivery{session: s, raw: raw, msg: msg, attempt: msg.Attempt, since: time.Now()}
	d := &deliver.Delivery{Message: msg, Size: len(raw.Body), Raw: dl}
	if s.cfg.Ordered {
		d.Key = msg.Key
	}
	s.mu.Lock()
	lost := s.dead
	if !lost {
		s.held[raw.DeliveryTag] = d
	}
	s.mu.Unlock()
	if !lost {
		s.deliverer.Add(d)
	}
}

// ack acknowledges d, unless its channel is gone: then it is delivered again, and is a duplicate.
func (s *session) ack(d *delivery) {
	if !s.forget(d) {
		return
	}
	if err := s.ch.Ack(d.raw.DeliveryTag, false); err != nil {
		_ = s.conn.CloseDeadline(time.Now().Add(closesWithin)) // else the server might wait for it for as long as the channel lives
		return
	}
	if f := s.cfg.Trace.Acked; f != nil {
		f(d.msg)
	}
}

// giveBack has d delivered again at once.
func (s *session) giveBack(d *delivery) {
	if s.forget(d) {
		_ = s.ch.Nack(d.raw.DeliveryTag, false, true)
	}
}

// forget reports whether d may still be settled, which is once.
func (s *session) forget(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[d.raw.DeliveryTag]
	delete(s.held, d.raw.DeliveryTag)
	return held && !s.dead
}

// watchAges says which message is near the server's timeout, once.
func (s *session) watchAges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range s.held {
		d := held.Raw.(*delivery)
		if age := time.Since(d.since); age > s.cfg.ConsumerTimeout*4/5 && !d.warned {
			d.warned = true
			s.log.Warn("rabbitmq: a message was received long ago and is not finished; soon the server closes the channel and delivers all that it holds again. "+
				"Make handlers shorter, Prefetch less, or consumer_timeout longer", "position", d.msg.Position, "age", age.Round(time.Millisecond),
				"consumer_timeout", s.cfg.ConsumerTimeout)
		}
	}
}

// leave is the end that nobody was forced to: what is in work is finished and settled, and the rest goes back.
func (s *session) leave() error {
	if !s.cfg.Ordered {
		// New messages go to others from now on, and so does what is not begun. In Ordered mode it would overtake what is handled here.
		cancelled := make(chan struct{})
		go func() {
			defer close(cancelled)
			if s.ch.Cancel(consumerTag, false) != nil {
				return
			}
			for raw := range s.deliveries { // that came before the server heard of it
				s.take(&raw)
			}
		}()
		defer func() { <-cancelled }()
		timer := time.NewTimer(cancelsWithin)
		defer timer.Stop()
		select {
		case <-cancelled:
		case <-timer.C: // the server is silent, and must not take from the grace period
		}
	}
	err := s.deliverer.Drain(s.cfg.Grace, deliver.HandlerExit)
	s.retries.drain(retriesWithin)
	s.close()
	return err
}

// abandon ends a session that has failed.
func (s *session) abandon(error) { s.close() }

// close gives back what is held, and waits until the channel is gone.
func (s *session) close() {
	_ = s.conn.CloseDeadline(time.Now().Add(closesWithin))
	<-s.gone
}
