package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
)

const (
	consumerTag   = "txonce" // tags need to be unique in a channel only
	closesWithin  = 5 * time.Second
	cancelsWithin = time.Second
)

// session is one channel that consumes. A message is settled on the channel that delivered it, or not at all.
type session struct {
	run        *run
	conn       Connection
	ch         Channel
	spec       QueueSpec // the queue as far as it is known
	specRead   bool      // spec was read from the server or compared by it; false: SubscriberConfig.Spec is believed
	deliveries <-chan amqp.Delivery
	cancels    chan string
	closed     chan struct{} // closed when the channel is closed, and all its messages are lost
	why        error         // why the channel closed; read it after closed

	mu       sync.Mutex
	dead     bool
	inFlight map[uint64]*deliver.Delivery // delivered and not settled, by tag
}

// open connects and begins to consume. Meanwhile the end of the run closes the connection, because amqp091-go knows no
// contexts.
func (r *run) open() (_ *session, err error) {
	limited, cancel := context.WithTimeout(r.deliverer.Context(), dialWithin)
	defer cancel()
	conn, err := r.cfg.Dial(limited)
	if err != nil {
		return nil, err
	}
	opened := context.AfterFunc(limited, func() { _ = conn.CloseDeadline(time.Now()) })
	defer func() {
		if !opened() && err == nil {
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
	s := &session{run: r, conn: conn, closed: make(chan struct{}), inFlight: map[uint64]*deliver.Delivery{}}
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
	s.spec, s.specRead = cfg.Spec, read
	r.warnOnce.Do(func() { cfg.warnOfRisks(version) })
	if err := s.ch.Qos(r.cfg.Prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("prefetch: %w", err)
	}
	// The context must not end: amqp091-go would then cancel the consumer, and in Ordered mode another process would
	// overtake this one.
	s.deliveries, err = s.ch.ConsumeWithContext(context.WithoutCancel(limited), r.cfg.Queue, consumerTag, false, false,
		false, false, nil)
	if err != nil {
		return nil, err
	}
	r.events.Broker.Worked(r.hooksCtx)
	r.events.Subscribed(r.hooksCtx)
	go s.awaitClose(closes)
	return s, nil
}

// awaitClose waits until the channel is closed. The server then delivers its messages again: handlers are cancelled,
// and nothing is acknowledged.
func (s *session) awaitClose(closes <-chan *amqp.Error) {
	defer close(s.closed)
	s.why = amqp.ErrClosed
	if err := <-closes; err != nil {
		s.why = err
	}
	s.mu.Lock()
	s.dead = true
	lost := s.inFlight
	s.inFlight = nil
	s.mu.Unlock()
	for _, tag := range slices.Sorted(maps.Keys(lost)) {
		s.run.deliverer.Lose(lost[tag])
	}
	if s.run.deliverer.Context().Err() == nil {
		s.run.events.Lost(s.run.hooksCtx, driver.SourceEvent{Messages: len(lost), Err: s.why})
	}
}

var errCancelled = errors.New("the server has cancelled the consumer: the queue was deleted, or its leader moved")

// receive takes deliveries in. It returns why the channel was closed, or nil when no batch may begin any more.
func (s *session) receive() error {
	ticker := time.NewTicker(max(s.run.cfg.ConsumerTimeout/100, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case raw, open := <-s.deliveries:
			if !open {
				return s.ended()
			}
			s.take(&raw)
		case <-ticker.C:
			s.watchAge()
		case <-s.run.deliverer.Context().Done():
			return nil
		}
	}
}

// ended returns why there are no more deliveries.
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
	case <-s.closed:
		return s.why
	case <-timer.C:
		return errCancelled
	}
}

// take adds raw to the Deliverer.
func (s *session) take(raw *amqp.Delivery) {
	msg := toMessage(s.run.cfg.Queue, raw)
	msg.Time = s.run.cfg.Timestamps.read(msg.Time)
	dl := &delivery{session: s, raw: raw, msg: msg, attempt: msg.Attempt, since: time.Now()}
	d := &deliver.Delivery{Message: msg, Size: len(raw.Body), Raw: dl}
	if s.run.cfg.Ordered {
		d.Key = msg.OrderingKey
	}
	s.mu.Lock()
	lost := s.dead
	if !lost {
		s.inFlight[raw.DeliveryTag] = d
	}
	s.mu.Unlock()
	if err := s.checkKind(raw); err != nil {
		s.run.deliverer.Fail(err) // raw goes back at the end
		return
	}
	s.warnOfExpiration(dl)
	if !lost {
		s.run.deliverer.Add(d)
	}
}

// stop ends the session when Run's context has ended or a message was rejected: handlers finish, and the other messages
// go back.
func (s *session) stop() error {
	if !s.run.cfg.Ordered {
		// From now on others get new messages, and the messages that are given back. In Ordered mode these would
		// overtake the messages that are handled here.
		cancelled := make(chan struct{})
		go func() {
			defer close(cancelled)
			if s.ch.Cancel(consumerTag, false) != nil {
				return
			}
			for raw := range s.deliveries { // those that the server sent before it handled the Cancel
				s.take(&raw)
			}
		}()
		defer func() { <-cancelled }()
		timer := time.NewTimer(cancelsWithin)
		defer timer.Stop()
		select {
		case <-cancelled:
		case <-timer.C: // a server that does not answer must not use up the grace period
		}
	}
	err := s.run.deliverer.Drain(s.run.cfg.Grace, deliver.HandlerExit)
	if !s.run.cfg.Ordered { // there the copies would lose their places
		s.giveBackExpiring()
	}
	s.run.retries.drain(retriesWithin)
	s.close()
	return err
}

// close gives back the messages in flight, and waits until the channel is closed.
func (s *session) close() {
	_ = s.conn.CloseDeadline(time.Now().Add(closesWithin))
	<-s.closed
}
