package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// calm is for how long nothing must wait in the queue of orders until it seems to be finished: AMQP does not tell how many
// messages consumers hold, and what they hold when they end comes back. See Left.
const calm = 3 * time.Second

// rabbitBroker is a queue of orders and one of events. Both are durable.
type rabbitBroker struct {
	url            string
	orders, events string
	conn           *amqp.Connection // nil: lost, or not made yet
	total          int64
	empty          time.Time // since when nothing waits; zero: something does
}

func newRabbitMQ(url, name string) *rabbitBroker {
	return &rabbitBroker{url: url, orders: name, events: name + "_events"}
}

// Open implements broker.
func (b *rabbitBroker) Open(context.Context) error {
	return b.onChannel(func(ch *amqp.Channel) error {
		for _, queue := range []string{b.orders, b.events} {
			if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
				return fmt.Errorf("declare queue %s: %w", queue, err)
			}
		}
		return nil
	})
}

// onChannel runs do on a channel of its own. The connection may have been lost since the last time.
func (b *rabbitBroker) onChannel(do func(*amqp.Channel) error) (err error) {
	if b.conn == nil || b.conn.IsClosed() {
		if b.conn, err = amqp.DialConfig(b.url, amqp.Config{Dial: amqp.DefaultDial(30 * time.Second)}); err != nil {
			return fmt.Errorf("connect to RabbitMQ at %s: %w", b.url, err)
		}
	}
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	return errors.Join(do(ch), ch.Close())
}

// Produce implements broker.
func (b *rabbitBroker) Produce(ctx context.Context, p *plan, progress func(done int)) error {
	const window = 1000 // messages on their way
	start := time.Now()
	b.total = int64(len(p.deliveries))
	return b.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		var last *amqp.DeferredConfirmation
		for i, d := range p.deliveries {
			confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", b.orders, true, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, Timestamp: p.PlacedAt(int(d.message), start), Body: p.Order(int(d.message)).JSON(),
			})
			if err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			if last = confirmation; i%window != window-1 && i < len(p.deliveries)-1 {
				continue
			}
			if ok, err := last.WaitContext(ctx); err != nil || !ok {
				return fmt.Errorf("produce: delivery %d is not confirmed: %w", i, errors.Join(err, ctx.Err()))
			}
			progress(i + 1)
		}
		return nil
	})
}

// Finished counts what does not wait any more, and takes the last one for finished only when that has lasted.
func (b *rabbitBroker) Finished(context.Context) ([]int64, error) {
	ready, err := b.ready(b.orders)
	switch {
	case err != nil:
		return nil, err
	case ready > 0:
		b.empty = time.Time{}
	case b.empty.IsZero():
		b.empty = time.Now()
	}
	finished := b.total - int64(ready)
	if ready == 0 && time.Since(b.empty) < calm {
		finished--
	}
	return []int64{finished}, nil
}

func (b *rabbitBroker) ready(queue string) (int, error) {
	q, err := b.inspect(queue)
	return q.Messages, err
}

func (b *rabbitBroker) inspect(queue string) (q amqp.Queue, err error) {
	err = b.onChannel(func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if err != nil {
		return q, fmt.Errorf("count the messages of queue %s: %w", queue, err)
	}
	return q, nil
}

// Left is how many orders there still are when no worker lives. That there are none it says after a second look: what was on its way
// back from a queue for retries was in no queue.
func (b *rabbitBroker) Left(ctx context.Context) (int, error) {
	if left, err := b.left(ctx); err != nil || left > 0 {
		return left, err
	}
	select {
	case <-time.After(calm):
		return b.left(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// left is one look. What a consumer held waits again when the queue has noticed that the consumer is gone.
func (b *rabbitBroker) left(ctx context.Context) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, queue := range rabbitmq.RetryQueues(b.orders) {
		n, err := b.putOff(queue)
		var answer *amqp.Error
		if errors.As(err, &answer) && answer.Code == amqp.NotFound {
			continue // it was never needed
		}
		if err != nil {
			return 0, err
		}
		left += n
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		q, err := b.inspect(b.orders)
		if err == nil && q.Consumers == 0 {
			return left + q.Messages, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("queue %s still has %d consumers: %w", b.orders, q.Consumers, errors.Join(err, ctx.Err()))
		}
	}
}

// putOff is how many messages a queue for retries has. Of a quorum queue that does not answer within a quarter of a second RabbitMQ says,
// without an error, that there is nothing in it (3.10: seen). Therefore it has to say so twice: who wants to get a message waits longer.
func (b *rabbitBroker) putOff(queue string) (n int, err error) {
	if n, err = b.ready(queue); err != nil || n > 0 {
		return n, err
	}
	err = b.onChannel(func(ch *amqp.Channel) error {
		_, there, err := ch.Get(queue, false) // the end of the channel gives it back
		if there {
			n = 1
		}
		return err
	})
	return n, err
}

// Ends implements broker.
func (b *rabbitBroker) Ends() []int64 { return []int64{b.total} }

// Events implements broker. One consumer gets all of the queue in its order.
func (b *rabbitBroker) Events(ctx context.Context, take func(id, customer string, payload []byte)) error {
	n, err := b.ready(b.events)
	if err != nil || n == 0 {
		return err
	}
	return b.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Qos(1000, 0, false); err != nil {
			return err
		}
		events, err := ch.ConsumeWithContext(ctx, b.events, "", false, true, false, false, nil)
		if err != nil {
			return fmt.Errorf("read the events: %w", err)
		}
		for i := 1; i <= n; i++ {
			select {
			case e, open := <-events:
				if !open {
					return fmt.Errorf("read the events: the channel was closed after %d of %d", i-1, n)
				}
				customer, _ := e.Headers[rabbitmq.HeaderKey].(string)
				take(e.MessageId, customer, e.Body)
				if i%500 == 0 || i == n {
					if err := e.Ack(true); err != nil {
						return fmt.Errorf("read the events: %w", err)
					}
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// Place implements broker.
func (b *rabbitBroker) Place() place {
	return place{Addresses: []string{b.url}, Orders: b.orders, Events: b.events}
}

// String implements broker.
func (b *rabbitBroker) String() string { return "queue " + b.orders }

// Close implements broker. It also deletes what the workers have declared for retries.
func (b *rabbitBroker) Close(context.Context) error {
	if b.conn == nil {
		return nil
	}
	err := b.onChannel(func(ch *amqp.Channel) error {
		for _, queue := range append(rabbitmq.RetryQueues(b.orders), b.orders, b.events) { // what is not there is deleted
			if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
				return fmt.Errorf("delete queue %s: %w", queue, err)
			}
		}
		return nil
	})
	if b.conn != nil {
		err = errors.Join(err, b.conn.Close())
	}
	return err
}
