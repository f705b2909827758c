package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer/driver"
)

// How a message is deferred. A copy goes to a retry queue, and the server moves it back to the work queue when its
// delay is over. The original is acknowledged when the server has confirmed the copy. A crash between the two leaves
// both, and the claim of the first to be handled suppresses the other.
//
// Retry queues are quorum queues with at-least-once dead-lettering, because other queues may lose a message on its way
// back when the server crashes. In a queue messages expire only at its head, so a long delay would hold up the shorter
// ones behind it. Therefore each doubling of the delay, from one second on, has a queue: a message comes back after its
// delay, and before twice that delay or one second. The queues are declared when they are first needed and stay: a
// dozen when delays are up to an hour. They do not expire, because declaring a quorum queue again does not keep it from
// expiring, and it would take its messages with it.

const (
	retryInfix      = ".txonce.retry."
	retrySuffixRoom = len(retryInfix) + 10
	minRetryStep    = time.Second
	maxRetryDelay   = math.MaxInt32 * time.Millisecond // 24 days, which every version accepts
	retriesWithin   = 5 * time.Second                  // for unconfirmed copies at the end of Run
	confirmWithin   = 30 * time.Second
	retryPause      = time.Minute // after a retry queue could not be declared

	// young is how long a retry queue is not used after it was declared or found. The age of one that was found is
	// unknown: another Subscriber may have declared it a moment ago. In our tests a crash of RabbitMQ 3.10 lost quorum
	// queues that were younger than about 5 s, with their confirmed messages.
	young = 10 * time.Second
)

// deferral is a delivery whose copy goes to a retry queue.
type deferral struct {
	delivery *delivery
	after    time.Duration
	attempt  int
}

// retries defers messages. Its one goroutine opens a connection of its own when it is first needed.
type retries struct {
	cfg       *SubscriberConfig
	log       *slog.Logger
	queuesOld bool            // see Subscriber.retryQueuesAreOld
	connected context.Context // the connections are closed when it ends
	done      chan struct{}
	input     chan struct{}  // wakes the goroutine
	owns      sync.WaitGroup // the goroutines of its connections

	mu      sync.Mutex
	steps   map[time.Duration]*retryStepState
	queued  []*deferral
	owed    int           // deferrals without an answer
	idle    chan struct{} // closed when owed is 0 or the server is blocked; nil: no goroutine waits for that
	blocked bool          // the server takes no messages in
	overdue bool          // the server did not confirm a copy in time
	begun   bool
}

func newRetries(s *Subscriber, connected context.Context) *retries {
	return &retries{
		cfg: &s.cfg, log: s.log, queuesOld: s.retryQueuesAreOld, connected: connected,
		done: make(chan struct{}), input: make(chan struct{}, 1), steps: map[time.Duration]*retryStepState{},
	}
}

// add defers a message, unless its copy is on its way already. It does not wait.
func (r *retries) add(d *deferral) {
	d.after = min(max(d.after, 0), maxRetryDelay)
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.delivery.copied {
		return
	}
	d.delivery.copied = true
	r.queued = append(r.queued, d)
	r.owed++
	r.wake()
}

// wake wakes the goroutine, and starts it when it does not run. r.mu is held.
func (r *retries) wake() {
	if !r.begun {
		r.begun = true
		go r.work()
	}
	r.signal()
}

// signal wakes the goroutine. It also wakes drain when there is nothing left to wait for. r.mu is held.
func (r *retries) signal() {
	select {
	case r.input <- struct{}{}:
	default:
	}
	if r.idle != nil && (r.owed == 0 || r.blocked) {
		close(r.idle)
		r.idle = nil
	}
}

// drain waits until each deferral has its answer, but no longer than within, and not at all while the server blocks
// publishers.
func (r *retries) drain(within time.Duration) {
	idle := make(chan struct{})
	r.mu.Lock()
	r.idle = idle
	r.signal()
	r.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owed > 0 {
		r.log.Warn("rabbitmq: the server did not confirm the copies of messages to be retried in time; the messages go back to the queue", "messages", r.owed)
	}
}

// wait waits for the goroutine. r.connected has ended.
func (r *retries) wait() {
	r.mu.Lock()
	begun := r.begun
	r.begun = true // no other one starts
	r.mu.Unlock()
	if begun {
		<-r.done
	}
}

// answer ends a deferral. err is nil when the server confirmed the copy. Otherwise the original waits in memory for the
// delay, and goes back to the queue.
func (r *retries) answer(d *deferral, err error) {
	s := d.delivery.session
	switch {
	case err == nil:
		s.ack(d.delivery)
		s.run.events.Returned(s.run.hooksCtx, driver.SourceEvent{Message: d.delivery.msg, After: d.after})
	case r.connected.Err() != nil || s.run.deliverer.Context().Err() != nil: // it goes back when the channel is closed
		if d.delivery.expires() {
			r.log.Warn("rabbitmq: a message has an expiration, and the server did not take a copy without one before Run ended; the message goes back to the queue, "+
				"and RabbitMQ drops it, or moves it to the dead letter exchange, when its expiration is over, counted from its first arrival",
				"position", d.delivery.msg.Position, "expiration", d.delivery.raw.Expiration, "error", err)
		}
	default:
		r.log.Warn("rabbitmq: a message to be retried could not be deferred; it waits in memory and goes back to the queue, and the failure is not counted",
			"position", d.delivery.msg.Position, "after", d.after, "error", err)
		time.AfterFunc(max(min(d.after, r.cfg.ConsumerTimeout/2), time.Second), func() { s.giveBack(d.delivery) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d.delivery.copied = err == nil
	r.owed--
	r.signal()
}

var errYoung = errors.New("its retry queue was declared or found less than 10 s ago")
