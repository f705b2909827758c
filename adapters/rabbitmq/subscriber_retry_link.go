package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// retryLink is the connection for publishing copies. Only the goroutine of retries uses it.
type retryLink struct {
	conn    Connection
	channel *confirmChannel
	alarm   alarm
}

// dead is closed when the connection is lost; nil if l is nil.
func (l *retryLink) dead() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.channel.dead
}

// work is the goroutine of retries.
func (r *retries) work() {
	defer close(r.done)
	var l *retryLink // nil: not connected
	for {
		l = r.doAll(l)
		select {
		case <-r.connected.Done():
			r.closeLink(l, r.connected.Err())
			for d := r.next(nil); d != nil; d = r.next(nil) {
				r.answer(d, r.connected.Err())
			}
			r.owns.Wait()
			return
		case <-r.input:
		case <-l.dead():
			r.closeLink(l, fmt.Errorf("the connection for retries is lost: %w", l.channel.why))
			l = nil
		}
	}
}

// doAll declares the wanted queues and sends the queued copies, on l or, when l is nil or lost, on a new link. It returns the link in
// use.
func (r *retries) doAll(l *retryLink) *retryLink {
	for r.connected.Err() == nil {
		if r.takeOverdue() { // the server slows down a connection with missing confirms
			r.closeLink(l, errOverdue)
			l = nil
		}
		if l != nil && l.alarm.refuses() != nil {
			break // the server reads nothing from l, not even a declaration
		}
		steps, d := r.wanted(), r.next(l)
		if d == nil && len(steps) == 0 {
			break
		}
		var err error
		if l == nil {
			l, err = r.openLink()
		}
		for _, step := range steps {
			r.find(l, err, step)
		}
		for ; d != nil && err != nil; d = r.next(l) {
			r.answer(d, err)
		}
		if d == nil {
			continue
		}
		if err := r.publish(l, d); err != nil {
			r.answer(d, err)
		}
		if l.conn.IsClosed() {
			r.closeLink(l, amqp.ErrClosed)
			l = nil
		}
	}
	return l
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

// next takes the next deferral out of the queue, unless the server is blocked on l.
func (r *retries) next(l *retryLink) (d *deferral) {
	if l != nil && l.alarm.refuses() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queued) > 0 {
		d = r.queued[0]
		r.queued = r.queued[1:]
	}
	return d
}

// openLink connects.
func (r *retries) openLink() (_ *retryLink, err error) {
	limited, cancel := context.WithTimeout(r.connected, dialWithin)
	defer cancel()
	conn, err := r.cfg.Dial(limited)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(limited, func() { cut(conn) })()
	l := &retryLink{conn: conn}
	l.channel, err = openConfirmChannel(conn, l.alarm.refuses, r.owns.Go)
	if err != nil {
		_ = conn.CloseDeadline(time.Now().Add(closesWithin))
		return nil, err
	}
	l.alarm.watch(conn, r.owns.Go, r.setBlocked)
	return l, nil
}

// setBlocked is called when the server blocks the connection, and when it unblocks it.
func (r *retries) setBlocked(b amqp.Blocking) {
	if b.Active {
		r.log.Warn("rabbitmq: the server is short of memory or disk and takes no messages; messages to be retried wait in memory", "reason", b.Reason)
	} else {
		r.log.Info("rabbitmq: the server takes messages again")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = b.Active
	r.signal()
}

// closeLink closes the connection and answers the unconfirmed copies with why. Those that arrived nevertheless are delivered twice. It does
// not wait for a server that is blocked or owes confirms.
func (r *retries) closeLink(l *retryLink, why error) {
	if l == nil {
		return
	}
	within := closesWithin
	if l.channel.owes() || l.alarm.refuses() != nil {
		within = 0
	}
	_ = l.conn.CloseDeadline(time.Now().Add(within))
	<-l.channel.dead
	r.mu.Lock()
	r.blocked = false
	r.mu.Unlock()
	for sent := range l.channel.owed {
		sent.answer(why)
	}
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

// declareRetry finds or declares a retry queue, and returns when it may be used. Each request has a channel of its own, because an error
// closes the channel.
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

// publish sends the copy. An error is the deferral's answer. Otherwise the answer is the server's confirm.
func (r *retries) publish(l *retryLink, d *deferral) error {
	queue := r.cfg.Queue
	msg := deferredCopy(d.delivery, d.attempt)
	if d.after > 0 {
		if !r.ready(d.after) {
			r.find(l, nil, retryStep(d.after))
			if !r.ready(d.after) {
				return errYoung
			}
		}
		queue = retryQueue(r.cfg.Queue, retryStep(d.after))
		// Rounded up, so that no copy comes back too early.
		msg.Expiration = fmt.Sprint((d.after + time.Millisecond - 1).Milliseconds())
	}
	sent := &record{key: queue, msg: msg, done: make(chan struct{})}
	var late *time.Timer
	sent.then = func(err error) {
		late.Stop()
		r.settled(d, err)
	}
	late = time.AfterFunc(confirmWithin, func() { sent.answer(errOverdue) })
	return l.channel.enqueue([]*record{sent})
}

var errOverdue = fmt.Errorf("the server has not confirmed the copy within %v", confirmWithin)

// settled handles the answer to a copy.
func (r *retries) settled(d *deferral, err error) {
	switch {
	case errors.Is(err, errBlocked) && r.connected.Err() == nil: // it was not sent
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queued = append(r.queued, d)
		r.signal()
		return
	case errors.Is(err, errReturned):
		r.forgetStep(retryStep(d.after))
		err = fmt.Errorf("no queue took the copy: %w", err)
	case errors.Is(err, errOverdue):
		r.cooldown(retryStep(d.after))
	}
	r.answer(d, err)
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

func (r *retries) takeOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	overdue := r.overdue
	r.overdue = false
	return overdue
}

// forgetStep makes ready look for the queue of step again.
func (r *retries) forgetStep(step time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, step)
}
