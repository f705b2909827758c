package rabbitmqtest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel is both ends of a channel: the client's and the server's.
type channel struct {
	c      *conn
	closed atomic.Bool // as the client sees it

	// Under the server's lock.
	gone       bool // as the server sees it
	prefetch   int  // per consumer
	shared     int  // for all consumers together
	consumers  map[string]*consumer
	unacked    []*delivered // in the order of their tags
	tag        uint64
	confirming bool
	seq        uint64 // of publishings, as the server counts them
	overdue    *time.Timer

	sending  sync.Mutex // publishings are numbered in the order of their sending
	selected atomic.Bool

	notify    sync.Mutex // client's side
	over      bool
	closes    []chan *amqp.Error
	returns   []chan amqp.Return
	cancels   []chan string
	published uint64 // in confirm mode
	confirms  map[uint64]*confirm
	buffers   map[string]*buffer
	ended     chan struct{}
	why       *amqp.Error // set before ended is closed
}

// delivered is a message that a client has received and not settled.
type delivered struct {
	tag   uint64
	q     *queue
	m     *message
	by    *consumer
	since time.Time
}

func newChannel(c *conn) *channel {
	return &channel{
		c: c, consumers: map[string]*consumer{}, confirms: map[uint64]*confirm{}, buffers: map[string]*buffer{},
		ended: make(chan struct{}),
	}
}

// call sends the server a request and waits for its answer, as long as the connection lasts. An error closes the
// channel.
func call[T any](ch *channel, do func() (T, *amqp.Error)) (T, error) {
	var none T
	if ch.closed.Load() {
		return none, amqp.ErrClosed
	}
	answer := make(chan T, 1)
	err := ch.c.send(64, func() {
		if ch.gone {
			return
		}
		v, err := do()
		if err != nil {
			ch.fail(err)
			return
		}
		ch.c.push(func() { answer <- v })
	})
	if err != nil {
		return none, err
	}
	select {
	case v := <-answer:
		return v, nil
	case <-ch.ended:
	}
	select {
	case v := <-answer:
		return v, nil
	default:
	}
	if ch.why != nil {
		return none, ch.why
	}
	return none, amqp.ErrClosed
}

// cast sends the server a request that has no answer.
func (ch *channel) cast(size int, do func() *amqp.Error) error {
	if ch.closed.Load() {
		return amqp.ErrClosed
	}
	return ch.c.send(size, func() {
		if ch.gone {
			return
		}
		if err := do(); err != nil {
			ch.fail(err)
		}
	})
}

// fail makes the server close the channel because of err.
func (ch *channel) fail(err *amqp.Error) {
	if ch.gone {
		return
	}
	if !err.Recover {
		ch.c.drop(err)
		return
	}
	ch.leave()
	ch.c.push(func() { ch.shutdown(err) })
}

// leave removes the channel from the server.
func (ch *channel) leave() {
	if ch.gone {
		return
	}
	ch.gone = true
	delete(ch.c.channels, ch)
	if ch.overdue != nil {
		ch.overdue.Stop()
	}
	for _, con := range ch.consumers {
		con.q.dismiss(con)
	}
	back := ch.unacked
	ch.unacked = nil
	touched := map[*queue]bool{}
	for _, d := range back {
		d.q.unacked--
		d.q.giveBack(d.m, false)
		touched[d.q] = true
	}
	for q := range touched {
		q.serve()
	}
	ch.consumers = nil
}

// shutdown ends the channel for the client.
func (ch *channel) shutdown(err *amqp.Error) {
	ch.closed.Store(true)
	ch.notify.Lock()
	defer ch.notify.Unlock()
	if ch.over {
		return
	}
	ch.over, ch.why = true, err
	tell(ch.closes, err)
	close(ch.ended)
	for _, b := range ch.buffers {
		b.drop()
	}
	closeAll(ch.closes)
	closeAll(ch.returns)
	closeAll(ch.cancels)
	for _, c := range ch.confirms {
		close(c.done)
	}
	ch.closes, ch.returns, ch.cancels, ch.confirms, ch.buffers = nil, nil, nil, nil, nil
}

// IsClosed implements rabbitmq.Channel.
func (ch *channel) IsClosed() bool { return ch.closed.Load() }

// Close implements rabbitmq.Channel.
func (ch *channel) Close() error {
	if ch.closed.Load() {
		return nil
	}
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		ch.leave()
		ch.c.push(func() { ch.shutdown(nil) })
		return none, nil
	})
	if errors.Is(err, amqp.ErrClosed) { // this is the error after an orderly close
		return nil
	}
	return err
}

// NotifyClose implements rabbitmq.Channel.
func (ch *channel) NotifyClose(receiver chan *amqp.Error) chan *amqp.Error {
	ch.notify.Lock()
	defer ch.notify.Unlock()
	listen(ch.over, &ch.closes, receiver)
	return receiver
}

// NotifyCancel implements rabbitmq.Channel.
func (ch *channel) NotifyCancel(receiver chan string) chan string {
	ch.notify.Lock()
	defer ch.notify.Unlock()
	listen(ch.over, &ch.cancels, receiver)
	return receiver
}

// NotifyReturn implements rabbitmq.Channel.
func (ch *channel) NotifyReturn(receiver chan amqp.Return) chan amqp.Return {
	ch.notify.Lock()
	defer ch.notify.Unlock()
	listen(ch.over, &ch.returns, receiver)
	return receiver
}
