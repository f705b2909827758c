package rabbitmqtest

import (
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// conn is both ends of a connection. A client's request is carried out at once, under the server's lock, unless the
// server does not read. The server's answers go through events, and one goroutine handles these, as amqp091-go's reader
// does.
type conn struct {
	s      *Server
	closed atomic.Bool // as the client sees it

	// Under the server's lock.
	gone     bool // as the server sees it
	channels map[*channel]bool
	inbox    []func() // sent by the client, not read by the server
	size     int      // bytes of it
	room     chan struct{}
	events   []func()
	last     bool // the last event is among them
	deaf     bool // the client has given up: it handles no event but the last
	wake     chan struct{}
	blocked  bool
	silent   *time.Timer // runs during a pause; nil before the first one

	notify  sync.Mutex // client's side
	over    bool
	closes  []chan *amqp.Error
	blocks  []chan amqp.Blocking
	clients map[*channel]bool
	ended   chan struct{} // closed when the connection has ended for the client
	why     *amqp.Error   // the connection ended; set before ended is closed
}

// socket is how many bytes fit between a client and a server that does not read.
const socket = 1 << 20

func newConn(s *Server) *conn {
	return &conn{
		s: s, channels: map[*channel]bool{}, clients: map[*channel]bool{}, room: make(chan struct{}),
		wake:  make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
}

// send makes the server run do. It blocks while the server does not read and the socket is full.
func (c *conn) send(size int, do func()) error {
	for {
		if c.closed.Load() {
			return amqp.ErrClosed
		}
		c.s.mu.Lock()
		switch {
		case c.gone: // and the client does not know yet
			c.s.mu.Unlock()
			return nil
		case c.s.paused == nil && !c.blocked:
			do()
			c.s.mu.Unlock()
			return nil
		case c.size < socket:
			c.inbox = append(c.inbox, do)
			c.size += size
			c.s.mu.Unlock()
			return nil
		}
		room := c.room
		c.s.mu.Unlock()
		select {
		case <-room:
		case <-c.ended:
		}
	}
}

// thaw reads the requests that arrived while the server read nothing.
func (c *conn) thaw() {
	for len(c.inbox) > 0 && c.s.paused == nil && !c.blocked && !c.gone {
		do := c.inbox[0]
		c.inbox = c.inbox[1:]
		do()
	}
	if len(c.inbox) == 0 {
		c.size = 0
		close(c.room)
		c.room = make(chan struct{})
	}
}

// push sends an event to the client.
func (c *conn) push(event func()) {
	if c.last || c.gone {
		return
	}
	c.events = append(c.events, event)
	c.awake()
}

func (c *conn) awake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// read handles the events, as the client's reader.
func (c *conn) read() {
	for {
		c.s.mu.Lock()
		event, last := c.next()
		c.s.mu.Unlock()
		switch {
		case event != nil:
			event()
			if last {
				return
			}
		default:
			<-c.wake
		}
	}
}

func (c *conn) next() (event func(), last bool) {
	if len(c.events) == 0 || c.s.paused != nil && !c.deaf && !c.gone {
		return nil, false
	}
	event = c.events[0]
	c.events[0] = nil
	c.events = c.events[1:]
	return event, c.last && len(c.events) == 0
}

// drop ends the connection from the server's side; notifications on their way to the client are lost.
func (c *conn) drop(err *amqp.Error) {
	if c.gone {
		return
	}
	if !c.last {
		c.events = nil
		c.end(err)
	}
	c.forget()
}

// end sends the client its last notification.
func (c *conn) end(err *amqp.Error) {
	c.push(func() { c.shutdown(err) })
	c.last = true
}

// forget removes the connection from the server.
func (c *conn) forget() {
	c.gone = true
	if c.silent != nil {
		c.silent.Stop()
	}
	delete(c.s.conns, c)
	for ch := range c.channels {
		ch.leave()
	}
	for _, q := range c.s.queues {
		if q.owner == c {
			c.s.removeQueue(q)
		}
	}
	c.inbox = nil
}

// lost is the client's reaction to a server that was silent for too long.
func (c *conn) lost() {
	c.breakOff(&amqp.Error{Code: amqp.FrameError, Reason: "read tcp 127.0.0.1:5672: i/o timeout"})
}

// breakOff is called when the client gives up. When a paused server reads again, it handles the requests that were sent
// before, and then the end.
func (c *conn) breakOff(err *amqp.Error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.gone || c.deaf {
		return
	}
	c.events, c.last = nil, false
	c.end(err)
	c.deaf = true
	if c.s.paused == nil && !c.blocked {
		c.forget()
		return
	}
	c.inbox = append(c.inbox, c.forget)
}

// shutdown ends the connection for the client.
func (c *conn) shutdown(err *amqp.Error) {
	c.closed.Store(true)
	c.notify.Lock()
	defer c.notify.Unlock()
	if c.over {
		return
	}
	c.over, c.why = true, err
	tell(c.closes, err)
	for ch := range c.clients {
		ch.shutdown(err)
	}
	close(c.ended)
	closeAll(c.closes)
	closeAll(c.blocks)
	c.closes, c.blocks = nil, nil
}

// Channel implements rabbitmq.Connection.
func (c *conn) Channel() (rabbitmq.Channel, error) {
	ch := newChannel(c)
	c.notify.Lock()
	if c.over {
		c.notify.Unlock()
		return rabbitmq.Channel{}, amqp.ErrClosed
	}
	c.clients[ch] = true
	c.notify.Unlock()
	if _, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		c.channels[ch] = true
		return none, nil
	}); err != nil {
		return rabbitmq.Channel{}, err
	}
	return rabbitmq.Channel{ChannelConsumer: ch, ChannelDeclarer: ch, ChannelPublisher: ch, ChannelCloser: ch}, nil
}

// NotifyClose implements rabbitmq.Connection.
func (c *conn) NotifyClose(receiver chan *amqp.Error) chan *amqp.Error {
	c.notify.Lock()
	defer c.notify.Unlock()
	listen(c.over, &c.closes, receiver)
	return receiver
}

// NotifyBlocked implements rabbitmq.Connection.
func (c *conn) NotifyBlocked(receiver chan amqp.Blocking) chan amqp.Blocking {
	c.notify.Lock()
	defer c.notify.Unlock()
	listen(c.over, &c.blocks, receiver)
	return receiver
}

func (c *conn) notifyBlocked(b amqp.Blocking) {
	c.notify.Lock()
	blocks := c.blocks
	c.notify.Unlock()
	notifyAll(blocks, b)
}

// IsClosed implements rabbitmq.Connection.
func (c *conn) IsClosed() bool { return c.closed.Load() }

// Close implements rabbitmq.Connection. Like amqp091-go's it waits for the server's answer.
func (c *conn) Close() error {
	if c.closed.Load() {
		return amqp.ErrClosed
	}
	err := c.send(0, func() {
		c.end(nil)
		c.forget()
	})
	if err != nil {
		return err
	}
	<-c.ended
	if c.why != nil {
		return c.why
	}
	return nil
}

// CloseDeadline implements rabbitmq.Connection. When the server has not answered by the deadline, the client breaks
// off.
func (c *conn) CloseDeadline(deadline time.Time) error {
	if c.closed.Load() {
		return amqp.ErrClosed
	}
	left := time.Until(deadline)
	if left <= 0 {
		// with time.AfterFunc the runtime of Go 1.26.8 has crashed here, in a synctest bubble under the race detector
		go c.breakOff(nil)
		return c.Close()
	}
	late := time.AfterFunc(left, func() { c.breakOff(nil) })
	defer late.Stop()
	return c.Close()
}
