package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// retryLine is the channel in confirm mode on which copies are published. Only the goroutine of retries uses it.
type retryLine struct {
	conn     Connection
	ch       Channel
	confirms chan amqp.Confirmation
	returns  chan amqp.Return
	closes   chan *amqp.Error
	blocked  chan amqp.Blocking
	pending  map[uint64]*putting
}

// retryWindow is how many copies are on their way at once. As many confirms and returns find room.
const retryWindow = 256

// work is the goroutine of retries.
func (r *retries) work() {
	defer close(r.done)
	l := &retryLine{} // not connected
	ticker := time.NewTicker(confirmWithin / 10)
	defer ticker.Stop()
	for {
		l = r.doAll(l)
		var lost error
		select {
		case <-r.life.Done():
			r.closeLine(l, r.life.Err())
			for p := r.next(l); p != nil; p = r.next(l) {
				r.answer(p, r.life.Err())
			}
			return
		case <-r.input:
		case c, open := <-l.confirms:
			if !open {
				l.confirms = nil
				continue
			}
			r.confirmed(l, c)
		case back, open := <-l.returns:
			if !open {
				l.returns = nil
				continue
			}
			l.cameBack(&back)
		case b, open := <-l.blocked:
			if !open {
				l.blocked = nil
				continue
			}
			r.sayBlocked(b)
		case err := <-l.closes:
			lost = amqp.ErrClosed
			if err != nil {
				lost = err
			}
		case <-ticker.C:
			if l.overdue() {
				lost = errors.New("the server does not confirm")
			}
		}
		if lost != nil {
			r.closeLine(l, fmt.Errorf("the connection for retries is lost: %w", lost))
			l = &retryLine{}
		}
	}
}

func (r *retries) sayBlocked(b amqp.Blocking) {
	if b.Active {
		r.log.Warn("rabbitmq: the server is short of memory or disk and takes no messages; what is to be retried waits", "reason", b.Reason)
		return
	}
	r.log.Info("rabbitmq: the server takes messages again")
}

// doAll does what there is to do, as far as there is room on the line, which it returns: the same, or another one.
func (r *retries) doAll(l *retryLine) *retryLine {
	for r.life.Err() == nil {
		steps, p := r.wanted(), r.next(l)
		if p == nil && len(steps) == 0 {
			break
		}
		var err error
		if l.conn == nil {
			l, err = r.openLine()
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
		r.serial++
		p.serial = r.serial
		if err := r.publish(l, p); err != nil {
			r.answer(p, err)
		}
		if l.conn.IsClosed() {
			r.closeLine(l, amqp.ErrClosed)
			l = &retryLine{}
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

// next takes out what is to be sent next, if l has room for it.
func (r *retries) next(l *retryLine) (p *putting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queued) > 0 && len(l.pending) < retryWindow {
		p = r.queued[0]
		r.queued = r.queued[1:]
	}
	return p
}

// openLine returns a line that is not connected beside an error.
func (r *retries) openLine() (_ *retryLine, err error) {
	limited, cancel := context.WithTimeout(r.life, dialWithin)
	defer cancel()
	conn, err := r.cfg.Dial(limited)
	if err != nil {
		return &retryLine{}, err
	}
	defer context.AfterFunc(limited, func() { _ = conn.CloseDeadline(time.Now()) })()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		_ = conn.CloseDeadline(time.Now().Add(closesWithin))
		return &retryLine{}, err
	}
	return &retryLine{
		conn: conn, ch: ch, pending: map[uint64]*putting{},
		confirms: ch.NotifyPublish(make(chan amqp.Confirmation, retryWindow)),
		returns:  ch.NotifyReturn(make(chan amqp.Return, retryWindow)),
		closes:   ch.NotifyClose(make(chan *amqp.Error, 1)),
		blocked:  conn.NotifyBlocked(make(chan amqp.Blocking, 16)),
	}, nil
}

// closeLine answers what is on its way: it may have arrived, and is delivered twice then.
func (r *retries) closeLine(l *retryLine, why error) {
	if l.conn == nil {
		return
	}
	_ = l.conn.CloseDeadline(time.Now().Add(closesWithin))
	for l.confirms != nil { // what was confirmed is confirmed
		select {
		case c, open := <-l.confirms:
			if open {
				r.confirmed(l, c)
				continue
			}
		default:
		}
		l.confirms = nil
	}
	for _, p := range l.pending {
		r.answer(p, why)
	}
}

// find looks for the queue of step, or makes it. It goes on a channel of its own, since an error closes that.
func (r *retries) find(l *retryLine, failed error, step time.Duration) {
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
func (r *retries) publish(l *retryLine, p *putting) error {
	queue := r.cfg.Queue
	msg := putOff(p.delivery, p.attempt, p.serial)
	if p.after > 0 {
		step := retryStep(p.after)
		if !r.ready(p.after) {
			r.find(l, nil, step)
			if !r.ready(p.after) {
				return errYoung
			}
		}
		queue = retryQueue(r.cfg.Queue, step)
		// Rounded up: never too early.
		msg.Expiration = fmt.Sprint((p.after + time.Millisecond - 1).Milliseconds())
	}
	p.sent = time.Now()
	tag := l.ch.GetNextPublishSeqNo()
	l.pending[tag] = p
	const mandatory, immediate = true, false
	err := l.ch.PublishWithContext(r.life, "", queue, mandatory, immediate, msg)
	if err != nil {
		delete(l.pending, tag)
		_ = l.conn.CloseDeadline(time.Now().Add(closesWithin)) // part of it may be written
	}
	return err
}

// confirmed takes a confirm in. The return of a message that no queue took comes before it.
func (r *retries) confirmed(l *retryLine, c amqp.Confirmation) {
	for more := true; more; {
		select {
		case back, open := <-l.returns:
			if more = open; open {
				l.cameBack(&back)
			}
		default:
			more = false
		}
	}
	p := l.pending[c.DeliveryTag]
	delete(l.pending, c.DeliveryTag)
	switch {
	case p == nil:
	case !c.Ack:
		r.answer(p, errors.New("the server has refused the copy"))
	case p.returned != nil:
		r.forgetStep(retryStep(p.after))
		r.answer(p, fmt.Errorf("no queue took the copy: %s", p.returned.ReplyText))
	default:
		r.answer(p, nil)
	}
}

// forgetStep has the queue looked for again.
func (r *retries) forgetStep(step time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, step)
}

func (l *retryLine) cameBack(back *amqp.Return) {
	serial := serialOf(back.Headers)
	for _, p := range l.pending {
		if p.serial == serial {
			p.returned = back
		}
	}
}

// overdue reports whether a confirm is.
func (l *retryLine) overdue() bool {
	for _, p := range l.pending {
		if time.Since(p.sent) > confirmWithin {
			return true
		}
	}
	return false
}
