package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// emptyFor is how long the queue of orders must be empty before it counts as finished. AMQP does not tell how many
// messages consumers hold, and messages that a consumer held when it ended return to the queue. See Left.
const emptyFor = 3 * time.Second

// rabbitBroker is a durable queue of orders and a durable queue of events.
type rabbitBroker struct {
	url            string
	orders, events string
	conn           *amqp.Connection // nil: not connected
	total          int64
	empty          time.Time // since when the queue of orders is empty; zero: it is not
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

// onChannel runs do on a new channel, and reconnects first if the connection is lost.
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
	const window = 1000 // messages that may be unconfirmed
	start := time.Now()
	b.total = int64(len(p.deliveries))
	return b.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		var last *amqp.DeferredConfirmation
		for i, d := range p.deliveries {
			confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", b.orders, true, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, Timestamp: p.PlacedAt(int(d.message), start),
				Body: p.Order(int(d.message)).JSON(),
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

// Finished counts the deliveries that are no longer in the queue. The last one counts as finished only after the queue
// was empty for some time.
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
	if ready == 0 && time.Since(b.empty) < emptyFor {
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

// Left returns how many orders are left after all workers have ended. It counts twice before it returns 0: a message on
// its way back from a retry queue is in no queue.
func (b *rabbitBroker) Left(ctx context.Context) (int, error) {
	if left, err := b.left(ctx); err != nil || left > 0 {
		return left, err
	}
	select {
	case <-time.After(emptyFor):
		return b.left(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// left counts once. A consumer's messages return to the queue when RabbitMQ notices that the consumer is gone.
func (b *rabbitBroker) left(ctx context.Context) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, queue := range rabbitmq.RetryQueues(b.orders) {
		n, err := b.countDeferred(queue)
		var answer *amqp.Error
		if errors.As(err, &answer) && answer.Code == amqp.NotFound {
			continue // no worker needed this retry queue
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
			return 0, fmt.Errorf("queue %s still has %d consumers: %w", b.orders, q.Consumers,
				errors.Join(err, ctx.Err()))
		}
	}
}

// countDeferred returns how many messages a retry queue has. RabbitMQ reports a quorum queue as empty, without an
// error, if the queue does not answer within 250 ms (seen with 3.10). So countDeferred confirms an empty queue with a
// Get, which waits longer.
func (b *rabbitBroker) countDeferred(queue string) (n int, err error) {
	if n, err = b.ready(queue); err != nil || n > 0 {
		return n, err
	}
	err = b.onChannel(func(ch *amqp.Channel) error {
		_, there, err := ch.Get(queue, false) // closing the channel returns the message
		if there {
			n = 1
		}
		return err
	})
	return n, err
}

// Ends implements broker.
func (b *rabbitBroker) Ends() []int64 { return []int64{b.total} }

// Events implements broker. A single consumer gets the queue's messages in order.
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

// Close implements broker. It also deletes the retry queues that the workers declared.
func (b *rabbitBroker) Close(context.Context) error {
	if b.conn == nil {
		return nil
	}
	err := b.onChannel(func(ch *amqp.Channel) error {
		for _, queue := range append(rabbitmq.RetryQueues(b.orders), b.orders, b.events) {
			// deleting a missing queue is no error
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
