package rabbitmq

import (
	"context"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// line is a channel in confirm mode. Two goroutines serve it: feed writes, because a write waits for as long as the server does not
// read and knows no context, and collect takes in what the server says.
//
// A message stands in pending from before it is written until its confirm: numbers are a channel's own and begin at 1 on each,
// so what one channel says never counts for the messages of another.
type line struct {
	ch       Channel
	input    chan *record
	room     chan struct{} // what is pending, and no more than fits into confirms and returns
	confirms chan amqp.Confirmation
	returns  chan amqp.Return
	closes   chan *amqp.Error
	dead     chan struct{} // closed when the channel is; then why says why
	why      error

	mu      sync.Mutex
	pending map[uint64]*record
}

// window is how many messages are on their way at once. As many confirms and returns find room: amqp091-go loses what nobody takes
// for 5 seconds, and a return that is lost makes of an unroutable message a confirmed one.
const window = 2048

// newLine makes of ch, a channel of its own, a line. Its goroutines are owns'. It asks the server, and may hang with it.
func newLine(life context.Context, ch Channel, owns *sync.WaitGroup) (*line, error) {
	l := &line{
		ch: ch, input: make(chan *record), room: make(chan struct{}, window), dead: make(chan struct{}), pending: map[uint64]*record{},
		confirms: make(chan amqp.Confirmation, window), returns: make(chan amqp.Return, window), closes: make(chan *amqp.Error, 1),
	}
	ch.NotifyClose(l.closes)
	ch.NotifyReturn(l.returns)
	ch.NotifyPublish(l.confirms)
	if err := ch.Confirm(false); err != nil {
		_ = ch.Close()
		return nil, err
	}
	owns.Go(l.collect)
	owns.Go(func() { l.feed(life) })
	return l, nil
}

// feed writes what comes in. What nobody waits for any more is not written.
func (l *line) feed(life context.Context) {
	for {
		var r *record
		select {
		case r = <-l.input:
		case <-l.dead:
			return
		}
		select {
		case l.room <- struct{}{}:
		case <-l.dead:
			return
		}
		if !r.wanted() {
			<-l.room
			continue
		}
		tag := l.ch.GetNextPublishSeqNo()
		l.mu.Lock()
		l.pending[tag] = r
		l.mu.Unlock()
		const mandatory, immediate = true, false
		if err := l.ch.PublishWithContext(life, r.exchange, r.key, mandatory, immediate, r.msg); err != nil {
			_ = l.ch.Close() // part of it may be written: this channel is spoilt
			return
		}
	}
}

// collect takes in what the server says until the channel is closed. It waits for nothing else, ever.
func (l *line) collect() {
	returns := l.returns
	for confirms := l.confirms; confirms != nil; {
		select {
		case c, ok := <-confirms:
			if !ok {
				confirms = nil
				continue
			}
			l.takeReturns() // of this message too: a return comes before its confirm
			l.settle(c)
		case back, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			l.mark(&back)
		}
	}
	l.why = amqp.ErrClosed
	if err := <-l.closes; err != nil {
		l.why = err
	}
	close(l.dead)
}

func (l *line) takeReturns() {
	for {
		select {
		case back, ok := <-l.returns:
			if !ok {
				return
			}
			l.mark(&back)
		default:
			return
		}
	}
}

// mark remembers that a message came back. A return has no number: where several could be meant, it is all of them, and those
// that did arrive are repeated.
func (l *line) mark(back *amqp.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.pending {
		if r.msg.MessageId == back.MessageId && r.exchange == back.Exchange && r.key == back.RoutingKey {
			r.returned = back
		}
	}
}

func (l *line) settle(c amqp.Confirmation) {
	l.mu.Lock()
	r := l.pending[c.DeliveryTag]
	delete(l.pending, c.DeliveryTag)
	l.mu.Unlock()
	if r == nil {
		return
	}
	<-l.room
	switch {
	case !c.Ack:
		r.answer(r.nacked())
	case r.returned != nil:
		r.answer(r.unroutable(r.returned))
	default:
		r.answer(nil)
	}
}

// send returns when every record has its answer, or when none will come in time, or when the channel is closed: then with why.
func (l *line) send(ctx context.Context, records []*record) error {
	if len(records) == 0 {
		return nil
	}
	for _, r := range records {
		select {
		case l.input <- r:
		case <-l.dead:
			return l.why
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, r := range records {
		select {
		case <-r.done:
			continue
		default:
		}
		select {
		case <-r.done:
		case <-l.dead:
			return l.whyUnless(records)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// whyUnless is why the channel is closed, unless all records have their answers anyway.
func (l *line) whyUnless(records []*record) error {
	if len(unknown(records)) == 0 {
		return nil
	}
	return l.why
}

// unknown are those of records that have no answer. A channel that is dead gives none any more.
func unknown(records []*record) (left []*record) {
	for _, r := range records {
		if r.wanted() {
			left = append(left, r)
		}
	}
	return left
}
