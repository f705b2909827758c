package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// record is a message on its way to the server.
type record struct {
	topic         string // Message.Topic; empty: a copy of a message that is tried again
	exchange, key string
	msg           amqp.Publishing
	then          func(error) // called with the answer, once; nil: only done is closed

	written  bool         // guarded by confirmChannel.mu
	returned *amqp.Return // no queue got it; likewise

	once sync.Once
	done chan struct{} // closed when it has its answer
	err  error         // the answer, once done
}

// destination is what a server may refuse, or not confirm.
type destination struct{ exchange, key string }

func (r *record) destination() destination { return destination{r.exchange, r.key} }

// answer settles r. Only the first answer counts.
func (r *record) answer(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
		if r.then != nil {
			r.then(err)
		}
	})
}

// open reports whether r has no answer yet.
func (r *record) open() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// unanswered are those of records that have no answer.
func unanswered(records []*record) (open []*record) {
	for _, r := range records {
		if r.open() {
			open = append(open, r)
		}
	}
	return open
}

// confirmChannel is a channel in confirm mode. Each message has a confirm of its own, so one that is not confirmed holds up no
// other. One goroutine, feed, writes: a write waits for as long as the server does not read, and knows no context.
type confirmChannel struct {
	ch      Channel
	refuses func() error  // why nothing may be written now; nil: it may
	wake    chan struct{} // something is queued
	room    chan struct{} // taken by what is written and not confirmed
	returns chan amqp.Return
	closes  chan *amqp.Error
	confirm sync.WaitGroup // goroutines that wait for a confirm; begun by feed
	dead    chan struct{}  // closed when the channel is, and all confirms that came are taken in; then why says why
	why     error

	mu     sync.Mutex
	over   bool // dead will be closed
	queued []*record
	owed   map[*record]bool         // put and not confirmed, whether written or not
	waits  map[destination]*waiting // what is owed, by destination
}

// waiting is how many confirms the server owes for a destination, and since when it has given none.
type waiting struct {
	n     int
	since time.Time
}

// window is how many messages are on their way at once. As many returns find room: amqp091-go loses what nobody takes for 5 seconds,
// and without its return an unroutable message looks confirmed.
const window = 2048

// newConfirmChannel makes of ch, which nobody else uses, a confirmChannel. Its goroutines are owns'. It asks the server, and may hang
// with it. refuses is asked before each message.
func newConfirmChannel(ch Channel, refuses func() error, owns *sync.WaitGroup) (*confirmChannel, error) {
	c := &confirmChannel{
		ch: ch, refuses: refuses, wake: make(chan struct{}, 1), room: make(chan struct{}, window), dead: make(chan struct{}),
		returns: make(chan amqp.Return, window), closes: make(chan *amqp.Error, 1),
		owed: map[*record]bool{}, waits: map[destination]*waiting{},
	}
	ch.NotifyClose(c.closes)
	ch.NotifyReturn(c.returns)
	if err := ch.Confirm(false); err != nil {
		_ = ch.Close()
		return nil, err
	}
	owns.Go(func() {
		c.end(c.feed())
	})
	return c, nil
}

// put has records written in their order, and does not wait. Its error is why the channel is closed; then it has done nothing.
func (c *confirmChannel) put(records []*record) error {
	now := time.Now()
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		<-c.dead
		return c.why
	}
	for _, r := range records {
		c.owed[r] = true
		r.written, r.returned = false, nil // on a channel that is closed by now
		w := c.waits[r.destination()]
		if w == nil {
			w = &waiting{since: now}
			c.waits[r.destination()] = w
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

// feed writes what is queued until the channel is closed, and returns why.
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
			_ = c.ch.Close() // part of it may be written: this channel is spoilt
			return <-c.closes
		}
	}
}

// write sends r, unless nobody waits for it any more or the server takes nothing in.
func (c *confirmChannel) write(r *record) error {
	refused := c.refuses()
	if refused != nil || !r.open() {
		<-c.room
		c.mu.Lock()
		c.forget(r)
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
		c.settle(r, confirm)
	})
	return nil
}

// settle takes in what the server says of r. A message that no queue got is returned before it is confirmed.
func (c *confirmChannel) settle(r *record, confirm Confirm) {
	acked := confirm.Acked()
	if !acked && c.ch.IsClosed() { // amqp091-go says the same of a nack and of a channel that is closed
		return
	}
	c.mu.Lock()
	c.takeReturns()
	c.forget(r)
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

// forget strikes r off what the server owes, which it has answered. c.mu is held.
func (c *confirmChannel) forget(r *record) {
	delete(c.owed, r)
	w := c.waits[r.destination()]
	if w.n--; w.n == 0 {
		delete(c.waits, r.destination())
		return
	}
	w.since = time.Now()
}

// takeReturns marks what came back. c.mu is held.
func (c *confirmChannel) takeReturns() {
	for {
		select {
		case back, ok := <-c.returns:
			if !ok {
				return
			}
			c.mark(&back)
		default:
			return
		}
	}
}

// mark remembers that a message came back. A return has no number: where several could be meant, it is all of them, and those
// that did arrive are repeated. c.mu is held.
func (c *confirmChannel) mark(back *amqp.Return) {
	for r := range c.owed {
		if r.written && r.msg.MessageId == back.MessageId && r.exchange == back.Exchange && r.key == back.RoutingKey {
			r.returned = back
		}
	}
}

// end is for when the channel is closed. What the server still owes it will not answer.
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

// send puts records, and returns when each has its answer, or ctx ends, or the channel is closed: then with why. It gives up on a
// destination for which the server has confirmed nothing for patience.
func (c *confirmChannel) send(ctx context.Context, records []*record, patience time.Duration) error {
	if len(records) == 0 {
		return nil
	}
	if err := c.put(records); err != nil {
		return err
	}
	ticker := time.NewTicker(max(patience/10, time.Millisecond))
	defer ticker.Stop()
	for _, r := range records {
		for r.open() {
			select {
			case <-r.done:
			case <-c.dead:
				if len(unanswered(records)) > 0 {
					return c.why
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
				c.giveUp(c.stuck(unanswered(records), patience), patience)
			}
		}
	}
	return nil
}

// giveUp answers records that the server has not confirmed in time.
func (c *confirmChannel) giveUp(records []*record, patience time.Duration) {
	blocked := c.refuses()
	for _, r := range records {
		if blocked != nil {
			r.answer(blocked)
			continue
		}
		r.answer(r.unconfirmed(patience))
	}
}

// stuck are those of records that the server owes confirms for, and has given none to their destination for so long.
func (c *confirmChannel) stuck(records []*record, patience time.Duration) (late []*record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if c.owed[r] && !c.over && time.Since(c.waits[r.destination()].since) >= patience {
			late = append(late, r)
		}
	}
	return late
}

// owes reports whether the server may yet confirm something.
func (c *confirmChannel) owes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && len(c.owed) > 0
}

// isDead reports whether the channel is closed.
func (c *confirmChannel) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}
