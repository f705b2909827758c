package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that is to be retried is put off: a copy goes to a queue for retries, from where the server brings it back to the
// work queue when its time has come, and when the server has confirmed the copy the original is acknowledged. A crash in between leaves
// both, and the claim suppresses one.
//
// The queues are of quorum type and bring messages back at least once: others may lose a message on that way when the server
// crashes. In a queue messages expire at its head only, so one of long delay would hold up those behind it. Therefore there is a
// queue for each doubling of the delay: a message comes back no sooner than asked for, and no later than after twice that.
// They are made when they are needed and stay, a dozen at most where delays are up to an hour. They do not expire: a quorum queue that
// does is not kept alive by being declared again, and would take its messages with it.

const (
	retryInfix      = ".txonce.retry."
	retrySuffixRoom = len(retryInfix) + 10
	minRetryStep    = time.Second
	maxRetryDelay   = math.MaxInt32 * time.Millisecond // 24 days, what every version accepts
	retriesWithin   = 5 * time.Second                  // for what is on its way at the end
	confirmWithin   = 30 * time.Second
	retryPause      = time.Minute // after queues for retries could not be made

	// young is how long a new queue is not used, nor one that was found, whose age nobody tells: another Subscriber may have made it
	// a moment ago. RabbitMQ 3.10 forgets quorum queues that are younger than about 5 s when it crashes (seen), with what was confirmed.
	young = 10 * time.Second
)

// retryStep is the longest delay of the queue that a delay belongs to.
func retryStep(after time.Duration) time.Duration {
	step := minRetryStep
	for step < after && step < maxRetryDelay {
		step *= 2
	}
	return min(step, maxRetryDelay)
}

// retryQueue is the name of a queue for retries.
func retryQueue(queue string, step time.Duration) string {
	return queue + retryInfix + strconv.FormatInt(step.Milliseconds(), 10)
}

func retryArgs(queue string) amqp.Table {
	return amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
	}
}

// QueueDeclarer makes queues. *amqp.Channel is one.
type QueueDeclarer interface {
	QueueDeclare(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
}

// DeclareRetryQueues makes the queues in which a Subscriber of queue puts messages off by up to longest, for who deploys them
// beforehand: the Subscriber's user then needs no permission to make them. It makes those it needs and does not find itself.
// Those it finds it leaves alone for ten seconds, as if they were new.
// Needs RabbitMQ 3.10.
func DeclareRetryQueues(ch QueueDeclarer, queue string, longest time.Duration) error {
	for step := minRetryStep; ; step = retryStep(step + 1) {
		name := retryQueue(queue, step)
		if _, err := ch.QueueDeclare(name, true, false, false, false, retryArgs(queue)); err != nil {
			return fmt.Errorf("rabbitmq: declare queue %s: %w", name, err)
		}
		if step >= longest || step >= maxRetryDelay {
			return nil
		}
	}
}

// RetryQueues names every queue in which a Subscriber of queue may put messages off, for who gives it up, with [DeclareRetryQueues]
// or without: few of them exist. They stay on the server until somebody deletes them. Do that when no Subscriber of queue runs any more and
// "rabbitmqctl list_queues name messages" shows none in them: what a client is told leaves out messages that are just on their way back.
func RetryQueues(queue string) (names []string) {
	for step := minRetryStep; ; step = retryStep(step + 1) {
		names = append(names, retryQueue(queue, step))
		if step >= maxRetryDelay {
			return names
		}
	}
}

// putting is a delivery on its way to be put off.
type putting struct {
	delivery *delivery
	after    time.Duration
	attempt  int
}

// retries puts messages off, on a connection of its own that it opens when it is first needed. One goroutine does it all.
type retries struct {
	*Subscriber
	life  context.Context
	done  chan struct{}
	input chan struct{}  // something is wanted
	owns  sync.WaitGroup // goroutines of its connections

	mu      sync.Mutex
	steps   map[time.Duration]*retryStepState
	queued  []*putting
	owed    int           // queued and not answered
	idle    chan struct{} // closed when nothing is on its way, or the server takes nothing in; nil: nobody waits for that
	alarmed bool          // the server takes nothing in
	overdue bool          // a confirm is
	begun   bool
}

type retryStepState struct {
	wanted    bool
	usable    time.Time // from when on; zero: not there
	tryAgain  time.Time // not before
	complaint string
}

func newRetries(s *Subscriber, life context.Context) *retries {
	return &retries{
		Subscriber: s, life: life, done: make(chan struct{}), input: make(chan struct{}, 1), steps: map[time.Duration]*retryStepState{},
	}
}

// ready reports whether there is a queue for this delay. If not it is seen to.
func (r *retries) ready(after time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.step(retryStep(after))
	if !st.usable.IsZero() {
		return !time.Now().Before(st.usable)
	}
	if !st.wanted && !time.Now().Before(st.tryAgain) {
		st.wanted = true
		r.wake()
	}
	return false
}

// step finds the state of a step. r.mu is held.
func (r *retries) step(step time.Duration) *retryStepState {
	st := r.steps[step]
	if st == nil {
		st = &retryStepState{}
		r.steps[step] = st
	}
	return st
}

// add puts p off. It does not wait.
func (r *retries) add(p *putting) {
	p.after = min(max(p.after, 0), maxRetryDelay)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued = append(r.queued, p)
	r.owed++
	r.wake()
}

// wake tells the goroutine, and starts it where there is none. r.mu is held.
func (r *retries) wake() {
	if !r.begun {
		r.begun = true
		go r.work()
	}
	r.signal()
}

// signal tells the goroutine that something has changed, and who waits for it to have nothing to do. r.mu is held.
func (r *retries) signal() {
	select {
	case r.input <- struct{}{}:
	default:
	}
	if r.idle != nil && (r.owed == 0 || r.alarmed) {
		close(r.idle)
		r.idle = nil
	}
}

// drain waits until nothing is on its way, for so long at the most, and not at all for a server that takes nothing in.
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
		r.log.Warn("rabbitmq: copies of messages to be retried are not confirmed in time; the messages go back to the queue", "messages", r.owed)
	}
}

// wait waits for the goroutine. life has ended.
func (r *retries) wait() {
	r.mu.Lock()
	begun := r.begun
	r.begun = true // too late for another one
	r.mu.Unlock()
	if begun {
		<-r.done
	}
}

// answer ends p: confirmed, or why not. Then the original waits for as long as the copy should have, and goes back.
func (r *retries) answer(p *putting, err error) {
	s := p.delivery.session
	switch {
	case err == nil:
		s.ack(p.delivery)
		if f := r.cfg.Trace.Deferred; f != nil {
			f(p.delivery.msg, p.after)
		}
	case r.life.Err() != nil || s.deliverer.Context().Err() != nil: // it goes back when the channel is closed
	default:
		r.log.Warn("rabbitmq: a message to be retried could not be put off; it waits here and goes back to the queue, uncounted",
			"position", p.delivery.msg.Position, "after", p.after, "error", err)
		time.AfterFunc(max(min(p.after, r.cfg.ConsumerTimeout/2), time.Second), func() { s.giveBack(p.delivery) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed--
	r.signal()
}

var errYoung = errors.New("its queue for retries was made only just now")
