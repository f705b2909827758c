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

// doAll declares the wanted queues and sends the queued copies, on l or, when l is nil or lost, on a new link. It
// returns the link in use.
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

// next takes the next deferral out of the queue, unless the server is blocked on l. It drops those whose original went
// back meanwhile: each copy would be one more message beside it, and while the server takes nothing in, one message
// would get a copy with each delivery.
func (r *retries) next(l *retryLink) (d *deferral) {
	if l != nil && l.alarm.refuses() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queued) > 0 {
		d, r.queued = r.queued[0], r.queued[1:]
		if d.delivery.session.holds(d.delivery) {
			return d
		}
		r.owed--
		r.signal()
	}
	return nil
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

// closeLink closes the connection and answers the unconfirmed copies with why. Those that arrived nevertheless are
// delivered twice. It does not wait for a server that is blocked or owes confirms.
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

// publish sends the copy. An error is the deferral's answer. Otherwise the answer is the server's confirm.
func (r *retries) publish(l *retryLink, d *deferral) error {
	queue := r.cfg.Queue
	msg := deferredCopy(d.delivery, d.attempt)
	if d.after > 0 && !r.ready(d.after) {
		r.find(l, nil, retryStep(d.after))
		if !r.ready(d.after) {
			if !d.delivery.expires() {
				return errYoung
			}
			d.after = 0 // the copy goes to the work queue, because the server might drop the original
		}
	}
	if d.after > 0 {
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

func (r *retries) takeOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	overdue := r.overdue
	r.overdue = false
	return overdue
}
