package rabbitmq

import (
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// confirmChannel is a channel in confirm mode. Each message has a confirm of its own, so an unconfirmed message does
// not delay the others. One goroutine, feed, writes: a write blocks while the server does not read, and takes no
// context.
type confirmChannel struct {
	ch      Channel
	refuses func() error  // why nothing may be written now; nil: it may
	wake    chan struct{} // something is queued
	room    chan struct{} // holds one for each message that is written and not confirmed
	returns chan amqp.Return
	closes  chan *amqp.Error
	confirm sync.WaitGroup // goroutines that wait for a confirm; begun by feed
	// closed when the channel is closed and all confirms that arrived are handled; afterwards why is set
	dead chan struct{}
	why  error

	mu     sync.Mutex
	over   bool // dead will be closed
	queued []*record
	owed   map[*record]bool           // queued or written, and not confirmed
	owing  map[destination]*owedThere // the same, by destination
}

// owedThere is how many confirms the server owes for a destination, and since when it has given none.
type owedThere struct {
	n     int
	since time.Time
}

// maxUnconfirmed is how many messages at most are written and not confirmed. The channel of returns has as much room:
// amqp091-go drops a return that is not received within 5 seconds, and without its return an unroutable message looks
// confirmed.
const maxUnconfirmed = 2048

// openConfirmChannel opens a channel on conn and puts it into confirm mode. It waits until the server answers or conn
// is cut. run starts the channel's goroutine. refuses is called before each message.
func openConfirmChannel(conn Connection, refuses func() error, run func(func())) (*confirmChannel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	c := &confirmChannel{
		ch: ch, refuses: refuses, wake: make(chan struct{}, 1), room: make(chan struct{}, maxUnconfirmed),
		dead:    make(chan struct{}),
		returns: make(chan amqp.Return, maxUnconfirmed), closes: make(chan *amqp.Error, 1),
		owed: map[*record]bool{}, owing: map[destination]*owedThere{},
	}
	ch.NotifyClose(c.closes)
	ch.NotifyReturn(c.returns)
	if err := ch.Confirm(false); err != nil {
		_ = ch.Close()
		return nil, err
	}
	run(func() { c.end(c.feed()) })
	return c, nil
}

// enqueue has records written in their order, and does not wait. When the channel is closed, it does nothing and
// returns the reason.
func (c *confirmChannel) enqueue(records []*record) error {
	now := time.Now()
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		<-c.dead
		return c.why
	}
	for _, r := range records {
		c.owed[r] = true
		r.written, r.returned = false, nil // these were set on an earlier channel, now closed
		w := c.owing[r.destination()]
		if w == nil {
			w = &owedThere{since: now}
			c.owing[r.destination()] = w
		}
		w.n++
	}
	c.queued = append(c.queued, records...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// feed writes the queued messages until the channel is closed, and returns why.
func (c *confirmChannel) feed() *amqp.Error {
	for {
		c.mu.Lock()
		var r *record
		if len(c.queued) > 0 {
			r = c.queued[0]
			c.queued[0] = nil
			c.queued = c.queued[1:]
		}
		c.mu.Unlock()
		if r == nil {
			select {
			case <-c.wake:
				continue
			case why := <-c.closes:
				return why
			}
		}
		select {
		case c.room <- struct{}{}:
		case why := <-c.closes:
			return why
		}
		if err := c.write(r); err != nil {
			_ = c.ch.Close() // a part of the message may be written, and nothing can follow it
			return <-c.closes
		}
	}
}

// write sends r, unless r has its answer already or the server takes no messages.
func (c *confirmChannel) write(r *record) error {
	refused := c.refuses()
	if refused != nil || !r.open() {
		<-c.room
		c.mu.Lock()
		c.notOwed(r)
		c.mu.Unlock()
		r.answer(refused)
		return nil
	}
	c.mu.Lock()
	r.written = true
	c.mu.Unlock()
	const mandatory, immediate = true, false
	confirm, err := c.ch.PublishWithDeferredConfirm(r.exchange, r.key, mandatory, immediate, r.msg)
	if err != nil {
		return err
	}
	c.confirm.Go(func() {
		<-confirm.Done()
		c.takeConfirm(r, confirm)
	})
	return nil
}

// takeConfirm answers r with the server's answer. A message that no queue got is returned before it is confirmed.
func (c *confirmChannel) takeConfirm(r *record, confirm Confirm) {
	acked := confirm.Acked()
	if !acked && c.ch.IsClosed() { // amqp091-go reports a closed channel as a nack
		return
	}
	c.mu.Lock()
	c.takeReturns()
	c.notOwed(r)
	back := r.returned
	c.mu.Unlock()
	<-c.room
	switch {
	case !acked:
		r.answer(r.nacked())
	case back != nil:
		r.answer(r.unroutable(back))
	default:
		r.answer(nil)
	}
}

// notOwed records that the server owes no confirm for r any more. c.mu is held.
func (c *confirmChannel) notOwed(r *record) {
	delete(c.owed, r)
	w := c.owing[r.destination()]
	if w.n--; w.n == 0 {
		delete(c.owing, r.destination())
		return
	}
	w.since = time.Now()
}

// takeReturns marks the messages that came back. c.mu is held.
func (c *confirmChannel) takeReturns() {
	for {
		select {
		case back, ok := <-c.returns:
			if !ok {
				return
			}
			c.markReturned(&back)
		default:
			return
		}
	}
}

// markReturned remembers that a message came back. A return has no delivery tag: if it fits several messages all of
// them are marked, and those that did arrive are repeated. c.mu is held.
func (c *confirmChannel) markReturned(back *amqp.Return) {
	for r := range c.owed {
		if r.written && r.msg.MessageId == back.MessageId && r.exchange == back.Exchange && r.key == back.RoutingKey {
			r.returned = back
		}
	}
}

// end is called when the channel is closed. The server will not send the missing confirms.
func (c *confirmChannel) end(why *amqp.Error) {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.confirm.Wait()
	c.why = amqp.ErrClosed
	if why != nil {
		c.why = why
	}
	close(c.dead)
}
