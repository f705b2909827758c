package rabbitmq_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// tally knows how many messages of queues are not acknowledged. The server says how many are ready, but not how many it
// has delivered. So tally counts those on the channels, outside of the tested code.
type tally struct {
	own rabbitmq.Dialer

	mu     sync.Mutex
	open   map[string]int                      // confirmed and not acknowledged, by message-id
	held   map[*tallyChannel]map[uint64]string // of the channels that consume
	closed time.Time                           // when the last of them was
}

func newTally(own rabbitmq.Dialer) *tally {
	return &tally{own: own, open: map[string]int{}, held: map[*tallyChannel]map[uint64]string{}}
}

// dial counts on all connections.
func (c *tally) dial(dial rabbitmq.Dialer) rabbitmq.Dialer {
	return func(ctx context.Context) (rabbitmq.Connection, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tallyConnection{conn, c}, nil
	}
}

type tallyConnection struct {
	rabbitmq.Connection
	tally *tally
}

func (c *tallyConnection) Channel() (rabbitmq.Channel, error) {
	ch, err := c.Connection.Channel()
	if err != nil {
		return ch, err
	}
	t := &tallyChannel{Channel: ch, tally: c.tally, gone: make(chan struct{})}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		<-closes
		close(t.gone)
		c.tally.mu.Lock()
		defer c.tally.mu.Unlock()
		if c.tally.held[t] != nil {
			// its unacknowledged messages, and those acknowledged too late, are ready again a moment later
			c.tally.closed = time.Now()
		}
		delete(c.tally.held, t)
	}()
	ch.ChannelConsumer, ch.ChannelPublisher = t, t
	return ch, nil
}

type tallyChannel struct {
	rabbitmq.Channel
	tally *tally
	gone  chan struct{}
	queue string     // that it consumes
	calls sync.Mutex // amqp091-go may give the answer to one call to another of the same time
}

func (ch *tallyChannel) ConsumeWithContext(
	ctx context.Context, queue, tag string, autoAck, exclusive, noLocal, noWait bool, args amqp.Table,
) (<-chan amqp.Delivery, error) {
	in, err := ch.Channel.ConsumeWithContext(ctx, queue, tag, autoAck, exclusive, noLocal, noWait, args)
	if err != nil {
		return nil, err
	}
	ch.tally.mu.Lock()
	ch.queue, ch.tally.held[ch] = queue, map[uint64]string{}
	ch.tally.mu.Unlock()
	out := make(chan amqp.Delivery)
	go func() {
		defer close(out)
		for d := range in {
			ch.tally.mu.Lock()
			if held := ch.tally.held[ch]; held != nil {
				held[d.DeliveryTag] = d.MessageId
			}
			ch.tally.mu.Unlock()
			select {
			case out <- d:
			case <-ch.gone:
				return
			}
		}
	}()
	return out, nil
}

func (ch *tallyChannel) Ack(tag uint64, multiple bool) error {
	if multiple {
		return errors.New("tally: several messages were acknowledged at once")
	}
	return ch.settle(tag, 1, func() error { return ch.Channel.Ack(tag, multiple) })
}

func (ch *tallyChannel) Nack(tag uint64, multiple, requeue bool) error {
	if multiple || !requeue {
		return errors.New("tally: a message was dropped")
	}
	return ch.settle(tag, 0, func() error { return ch.Channel.Nack(tag, multiple, requeue) })
}

// settle counts an acknowledgement when it is written, even if the channel is lost meanwhile: the server may have
// handled it. If it has not, the message is delivered and acknowledged again, and left allows for that.
func (ch *tallyChannel) settle(tag uint64, acked int, write func() error) error {
	ch.tally.mu.Lock()
	id, ok := ch.tally.held[ch][tag]
	ch.tally.mu.Unlock()
	err := write()
	if err == nil && ok {
		ch.tally.mu.Lock()
		defer ch.tally.mu.Unlock()
		ch.tally.open[id] -= acked
		delete(ch.tally.held[ch], tag)
	}
	return err
}

func (ch *tallyChannel) Cancel(tag string, noWait bool) error {
	ch.calls.Lock()
	defer ch.calls.Unlock()
	return ch.Channel.Cancel(tag, noWait)
}

// PublishWithDeferredConfirm counts a message when the server confirms it, before its sender learns that. A message
// that the server refused, or did not answer before the connection was lost, is not counted, because it may not exist.
// If it does exist, the server counts it while it is ready, and tally counts it after its delivery.
func (ch *tallyChannel) PublishWithDeferredConfirm(
	exchange, key string, mandatory, immediate bool, msg amqp.Publishing,
) (rabbitmq.Confirm, error) {
	in, err := ch.Channel.PublishWithDeferredConfirm(exchange, key, mandatory, immediate, msg)
	if err != nil || in == nil {
		return in, err
	}
	c := tallyConfirm{in, make(chan struct{})}
	go func() {
		defer close(c.done)
		<-in.Done()
		if in.Acked() {
			ch.tally.mu.Lock()
			defer ch.tally.mu.Unlock()
			ch.tally.open[msg.MessageId]++
		}
	}()
	return c, nil
}

type tallyConfirm struct {
	rabbitmq.Confirm
	done chan struct{}
}

func (c tallyConfirm) Done() <-chan struct{} { return c.done }

// answered returns when the server has handled the acknowledgements sent on ch before. An acknowledgement has no
// answer; a request that is sent behind it is.
func (ch *tallyChannel) answered() error {
	ch.calls.Lock()
	defer ch.calls.Unlock()
	_, err := ch.QueueDeclarePassive(ch.queue, true, false, false, false, nil)
	return err
}

// left waits until returned messages are ready again, the server's numbers stay the same, and the server has handled
// all acknowledgements.
func (c *tally) left(ctx context.Context, queues []string) (int, error) {
	last := -1
	for {
		c.mu.Lock()
		settling := time.Since(c.closed) < 300*time.Millisecond
		held, open := 0, 0
		for ch, h := range c.held {
			if !ch.IsClosed() { // else they are ready again, and counted there
				held += len(h)
			}
		}
		for _, n := range c.open {
			open += max(n, 0)
		}
		c.mu.Unlock()
		ready, err := c.ready(ctx, queues)
		if err != nil {
			return 0, err
		}
		n := max(ready+held, open)
		if n == last && !settling && c.answered() {
			return n, nil
		}
		last = n
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// answered sends a request on all channels that consume. A channel that is lost meanwhile has not answered.
func (c *tally) answered() bool {
	c.mu.Lock()
	channels := slices.Collect(maps.Keys(c.held))
	c.mu.Unlock()
	for _, ch := range channels {
		if ch.answered() != nil {
			return false
		}
	}
	return true
}

func (c *tally) ready(ctx context.Context, queues []string) (n int, err error) {
	conn, err := c.own(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for _, name := range queues {
		ch, err := conn.Channel()
		if err != nil {
			return 0, err
		}
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		var e *amqp.Error
		switch {
		case err == nil:
			n += q.Messages
			_ = ch.Close()
		case errors.As(err, &e) && e.Code == amqp.NotFound: // none of this name: nothing in it
		default:
			return 0, err
		}
	}
	return n, nil
}
