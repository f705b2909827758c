package rabbitmq_test

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// tally knows how many messages of queues are not acknowledged. The server says how many are ready; how many it has delivered
// it does not say, so that is counted on the channels, from outside of what is tested.
type tally struct {
	own rabbitmq.Dialer

	mu     sync.Mutex
	open   map[string]int // sent and not acknowledged, by message-id
	held   map[*tallyChannel]map[uint64]string
	closed time.Time // when the last channel was that held something
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
		return nil, err
	}
	t := &tallyChannel{Channel: ch, tally: c.tally, gone: make(chan struct{})}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		<-closes
		close(t.gone)
		c.tally.mu.Lock()
		defer c.tally.mu.Unlock()
		if len(c.tally.held[t]) > 0 {
			c.tally.closed = time.Now()
		}
		delete(c.tally.held, t)
	}()
	return t, nil
}

type tallyChannel struct {
	rabbitmq.Channel
	tally *tally
	gone  chan struct{}
}

func (ch *tallyChannel) ConsumeWithContext(
	ctx context.Context, queue, tag string, autoAck, exclusive, noLocal, noWait bool, args amqp.Table,
) (<-chan amqp.Delivery, error) {
	in, err := ch.Channel.ConsumeWithContext(ctx, queue, tag, autoAck, exclusive, noLocal, noWait, args)
	if err != nil {
		return nil, err
	}
	ch.tally.mu.Lock()
	ch.tally.held[ch] = map[uint64]string{}
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
	ch.settled(tag, 1)
	return ch.Channel.Ack(tag, multiple)
}

func (ch *tallyChannel) Nack(tag uint64, multiple, requeue bool) error {
	if multiple || !requeue {
		return errors.New("tally: a message was dropped")
	}
	ch.settled(tag, 0)
	return ch.Channel.Nack(tag, multiple, requeue)
}

func (ch *tallyChannel) settled(tag uint64, acked int) {
	ch.tally.mu.Lock()
	defer ch.tally.mu.Unlock()
	if id, ok := ch.tally.held[ch][tag]; ok {
		ch.tally.open[id] -= acked
		delete(ch.tally.held[ch], tag)
	}
}

func (ch *tallyChannel) PublishWithContext(ctx context.Context, exchange, key string, mandatory, immediate bool, msg amqp.Publishing) error {
	ch.tally.mu.Lock()
	ch.tally.open[msg.MessageId]++
	ch.tally.mu.Unlock()
	return ch.Channel.PublishWithContext(ctx, exchange, key, mandatory, immediate, msg)
}

// left waits until what was given back is ready again, and what the server says stays the same.
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
		if n == last && !settling {
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
