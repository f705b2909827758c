package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// retryStep is the longest delay of the retry queue for this delay.
func retryStep(after time.Duration) time.Duration {
	step := minRetryStep
	for step < after && step < maxRetryDelay {
		step *= 2
	}
	return min(step, maxRetryDelay)
}

// retryQueue is the name of a retry queue.
func retryQueue(queue string, step time.Duration) string {
	return queue + retryInfix + strconv.FormatInt(step.Milliseconds(), 10)
}

func retryArgs(queue string) amqp.Table {
	return amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
	}
}

// QueueDeclarer declares queues. *amqp.Channel implements it.
type QueueDeclarer interface {
	QueueDeclare(name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)
}

// DeclareRetryQueues declares the queues that a Subscriber of queue needs to defer messages by up to longest. A
// deployment that calls it beforehand can run Subscribers whose user has no permission to configure these queues.
// Otherwise the Subscriber declares missing ones itself. A Subscriber does not use a queue in the first ten seconds
// after it found it, because it may be new. Needs RabbitMQ 3.10.
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

// RetryQueues returns the names of all retry queues that a Subscriber of queue may use; only a few of them exist. They
// stay on the server until they are deleted. Delete them when no Subscriber of queue runs any more and "rabbitmqctl
// list_queues name messages" shows no messages in them: the counts that a client gets leave out messages that are on
// their way back.
func RetryQueues(queue string) (names []string) {
	for step := minRetryStep; ; step = retryStep(step + 1) {
		names = append(names, retryQueue(queue, step))
		if step >= maxRetryDelay {
			return names
		}
	}
}

// retryStepState is what is known about one retry queue.
type retryStepState struct {
	wanted    bool
	usable    time.Time // when it may first be used; zero: it does not exist
	tryAgain  time.Time // earliest time of the next attempt
	complaint string    // the last error that was logged
}

// ready reports whether the retry queue for this delay can be used. If not, the goroutine declares it.
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

// step returns the state of a step. r.mu is held.
func (r *retries) step(step time.Duration) *retryStepState {
	st := r.steps[step]
	if st == nil {
		st = &retryStepState{}
		r.steps[step] = st
	}
	return st
}

// wanted returns the steps whose queues must be found or declared.
func (r *retries) wanted() (steps []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for step, st := range r.steps {
		if st.wanted {
			steps = append(steps, step)
		}
	}
	return steps
}

// find looks for the queue of step, or declares it. failed says why there is no connection for that; nil: there is one.
func (r *retries) find(l *retryLink, failed error, step time.Duration) {
	name := retryQueue(r.cfg.Queue, step)
	var usable time.Time
	err := failed
	if err == nil {
		usable, err = r.declareRetry(l.conn, name)
	}
	r.mu.Lock()
	st := r.step(step)
	st.wanted = false
	st.usable = usable
	logged := st.complaint
	if err != nil {
		st.tryAgain, st.complaint = time.Now().Add(retryPause), err.Error()
	}
	r.mu.Unlock()
	if err != nil && logged != err.Error() && r.connected.Err() == nil {
		r.log.Warn("rabbitmq: there is no retry queue, so messages to be retried wait in memory; use RabbitMQ 3.10 or later, and give this user the permission to "+
			"declare the queue, or call rabbitmq.DeclareRetryQueues when you deploy", "retry_queue", name, "error", err)
	}
}

// declareRetry finds or declares a retry queue, and returns when it may be used. Each request has a channel of its own,
// because an error closes the channel.
func (r *retries) declareRetry(conn Connection, name string) (usable time.Time, err error) {
	defer context.AfterFunc(r.connected, func() { _ = conn.CloseDeadline(time.Now()) })()
	onChannel := func(do func(ChannelDeclarer) error) error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := do(ch); err != nil {
			return err // it has closed the channel
		}
		return ch.Close()
	}
	err = onChannel(func(ch ChannelDeclarer) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	if err == nil && r.queuesOld {
		return time.Now(), nil
	}
	if err == nil {
		return time.Now().Add(young), nil
	}
	var missing *amqp.Error
	if !errors.As(err, &missing) || missing.Code != amqp.NotFound {
		return time.Time{}, err
	}
	err = onChannel(func(ch ChannelDeclarer) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, retryArgs(r.cfg.Queue))
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(young), nil
}

// cooldown stops sending for a while to a queue that does not confirm, so that it does not hold up the others.
func (r *retries) cooldown(step time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.step(step)
	st.usable, st.tryAgain = time.Time{}, time.Now().Add(retryPause)
	r.overdue = true
	r.signal()
}

// forgetStep makes ready look for the queue of step again.
func (r *retries) forgetStep(step time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, step)
}
