package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// retryLink is the connection on which copies are published. Only the goroutine of retries uses it.
type retryLink struct {
	conn    Connection
	channel *confirmChannel
	alarm   alarm
}

// dead is closed when the link is lost; nil if there is none.
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
		case <-r.life.Done():
			r.closeLink(l, r.life.Err())
			for p := r.next(nil); p != nil; p = r.next(nil) {
				r.answer(p, r.life.Err())
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

// doAll does what there is to do on l, or on another link where l is lost, and returns the link that there is then.
func (r *retries) doAll(l *retryLink) *retryLink {
	for r.life.Err() == nil {
		if r.takeOverdue() { // the server slows down a connection on which it owes confirms
			r.closeLink(l, errOverdue)
			l = nil
		}
		if l != nil && l.alarm.refuses() != nil {
			break // it reads nothing, not even a declaration
		}
		steps, p := r.wanted(), r.next(l)
		if p == nil && len(steps) == 0 {
			break
		}
		var err error
		if l == nil {
			l, err = r.openLink()
		}
		for _, step := range steps {
			r.find(l, err, step)
		}
		for ; p != nil && err != nil; p = r.next(l) {
			r.answer(p, err)
		}
		if p == nil {
			continue
		}
		if err := r.publish(l, p); err != nil {
			r.answer(p, err)
		}
		if l.conn.IsClosed() {
			r.closeLink(l, amqp.ErrClosed)
			l = nil
		}
	}
	return l
}

// wanted lists the steps whose queues are to be looked for.
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

// next takes out what is to be sent next, unless the server takes nothing in on l.
func (r *retries) next(l *retryLink) (p *putting) {
	if l != nil && l.alarm.refuses() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queued) > 0 {
		p = r.queued[0]
		r.queued = r.queued[1:]
	}
	return p
}

// openLink connects.
func (r *retries) openLink() (_ *retryLink, err error) {
	limited, cancel := context.WithTimeout(r.life, dialWithin)
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
	l.alarm.watch(conn, r.owns.Go, r.blocked)
	return l, nil
}

// blocked is called when the server begins to take nothing in, or takes messages in again.
func (r *retries) blocked(b amqp.Blocking) {
	if b.Active {
		r.log.Warn("rabbitmq: the server is short of memory or disk and takes no messages; what is to be retried waits", "reason", b.Reason)
	} else {
		r.log.Info("rabbitmq: the server takes messages again")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarmed = b.Active
	r.signal()
}

// closeLink answers what is on its way: it may have arrived, and is delivered twice then. A server that takes nothing in is
// not waited for.
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
	r.alarmed = false
	r.mu.Unlock()
	for sent := range l.channel.owed {
		sent.answer(why)
	}
}

// find looks for the queue of step, or makes it. It goes on a channel of its own, since an error closes that.
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
	said := st.complaint
	if err != nil {
		st.tryAgain, st.complaint = time.Now().Add(retryPause), err.Error()
	}
	r.mu.Unlock()
	if err != nil && said != err.Error() && r.life.Err() == nil {
		r.log.Warn("rabbitmq: there is no queue for retries; what is to be retried waits in memory. It takes RabbitMQ 3.10, and permission to make the queue or "+
			"rabbitmq.DeclareRetryQueues", "retry_queue", name, "error", err)
	}
}

// declareRetry returns from when on the queue may be used.
func (r *retries) declareRetry(conn Connection, name string) (usable time.Time, err error) {
	defer context.AfterFunc(r.life, func() { _ = conn.CloseDeadline(time.Now()) })()
	onChannel := func(do func(Channel) error) error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := do(ch); err != nil {
			return err // which has closed the channel
		}
		return ch.Close()
	}
	err = onChannel(func(ch Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	if err == nil && r.cfg.knownOld {
		return time.Now(), nil
	}
	if err == nil {
		return time.Now().Add(young), nil
	}
	var missing *amqp.Error
	if !errors.As(err, &missing) || missing.Code != amqp.NotFound {
		return time.Time{}, err
	}
	err = onChannel(func(ch Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, retryArgs(r.cfg.Queue))
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(young), nil
}

// publish sends p's copy. Its error is p's answer; otherwise a confirm will be.
func (r *retries) publish(l *retryLink, p *putting) error {
	queue := r.cfg.Queue
	msg := putOff(p.delivery, p.attempt)
	if p.after > 0 {
		if !r.ready(p.after) {
			r.find(l, nil, retryStep(p.after))
			if !r.ready(p.after) {
				return errYoung
			}
		}
		queue = retryQueue(r.cfg.Queue, retryStep(p.after))
		// Rounded up: never too early.
		msg.Expiration = fmt.Sprint((p.after + time.Millisecond - 1).Milliseconds())
	}
	sent := &record{key: queue, msg: msg, done: make(chan struct{})}
	var late *time.Timer
	sent.then = func(err error) {
		late.Stop()
		r.settled(p, err)
	}
	late = time.AfterFunc(confirmWithin, func() { sent.answer(errOverdue) })
	return l.channel.enqueue([]*record{sent})
}

var errOverdue = fmt.Errorf("the server has not confirmed the copy within %v", confirmWithin)

// settled handles the answer to p's copy.
func (r *retries) settled(p *putting, err error) {
	switch {
	case errors.Is(err, errBlocked) && r.life.Err() == nil: // it was not sent
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queued = append(r.queued, p)
		r.signal()
		return
	case errors.Is(err, errReturned):
		r.forgetStep(retryStep(p.after))
		err = fmt.Errorf("no queue took the copy: %w", err)
	case errors.Is(err, errOverdue):
		r.cooldown(retryStep(p.after))
	}
	r.answer(p, err)
}

// cooldown has nothing sent for a while to a queue that does not confirm: it must not hold up the others.
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

// forgetStep has the queue looked for again.
func (r *retries) forgetStep(step time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, step)
}
