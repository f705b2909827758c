package rabbitmqtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// world is a RabbitMQ to compare with another. Both sides of the comparison see no more of it than the adapter does.
type world struct {
	*testing.T
	dial        rabbitmq.Dialer
	prefix      string // of names
	names       int
	deleteQueue func(name string)
	declared    []string
	exchanges   []string
	real        bool
}

func (w *world) name(what string) string {
	w.names++
	return fmt.Sprintf("%s-%s-%d", w.prefix, what, w.names)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) conn() rabbitmq.Connection {
	w.Helper()
	c, err := w.dial(w.Context())
	w.must(err)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) channel() rabbitmq.Channel {
	w.Helper()
	ch, err := w.conn().Channel()
	w.must(err)
	return ch
}

// queue declares a durable queue, classic unless args say otherwise.
func (w *world) queue(args amqp.Table) string {
	w.Helper()
	name := w.name("queue")
	_, err := w.channel().QueueDeclare(name, true, false, false, false, args)
	w.must(err)
	w.declared = append(w.declared, name)
	return name
}

// exchange declares a durable one.
func (w *world) exchange(kind string, args amqp.Table) string {
	w.Helper()
	name := w.name("exchange")
	w.must(w.channel().ExchangeDeclare(name, kind, true, false, false, false, args))
	w.exchanges = append(w.exchanges, name)
	return name
}

func (w *world) bind(queue, key, exchange string) {
	w.Helper()
	w.must(w.channel().QueueBind(queue, key, exchange, false, nil))
}

// publisher is a channel in confirm mode that waits for each confirm.
type publisher struct {
	*world
	rabbitmq.Channel
	returns chan amqp.Return
}

func (w *world) publisher() *publisher {
	w.Helper()
	p := &publisher{w, w.channel(), make(chan amqp.Return, 100)}
	w.must(p.Confirm(false))
	p.NotifyReturn(p.returns)
	return p
}

// send publishes bodies to the default exchange, and returns what the server says of each.
func (p *publisher) send(queue string, bodies ...string) (acks []bool) {
	p.Helper()
	for _, body := range bodies {
		acks = append(acks, p.sendAs("", queue, amqp.Publishing{Body: []byte(body), DeliveryMode: 2}))
	}
	return acks
}

func (p *publisher) sendAs(exchange, key string, msg amqp.Publishing) bool {
	p.Helper()
	return p.acked(p.put(exchange, key, msg))
}

// put publishes msg, and does not wait.
func (p *publisher) put(exchange, key string, msg amqp.Publishing) rabbitmq.Confirm {
	p.Helper()
	c, err := p.PublishWithDeferredConfirm(exchange, key, true, false, msg)
	p.must(err)
	return c
}

// acked waits for a confirm.
func (w *world) acked(c rabbitmq.Confirm) bool {
	w.Helper()
	ends(w, c.Done())
	return c.Acked()
}

// patience is how long a test waits for what must happen, and quiet for what must not.
const (
	patience = 2 * time.Minute
	quiet    = 300 * time.Millisecond
)

func within[T any](w *world, ch <-chan T) T {
	w.Helper()
	select {
	case v, ok := <-ch:
		if !ok {
			w.Fatalf("the channel of %T is closed", v)
		}
		return v
	case <-time.After(patience):
		var none T
		w.Fatalf("no %T came", none)
		return none
	}
}

// silent fails when something comes.
func silent[T any](w *world, ch <-chan T) {
	w.Helper()
	select {
	case v, ok := <-ch:
		w.Fatalf("%+v came (%v), and nothing should", v, ok)
	case <-time.After(quiet):
	}
}

// ends waits until ch is closed, and returns what came before.
func ends[T any](w *world, ch <-chan T) (last []T) {
	w.Helper()
	late := time.After(patience)
	for {
		select {
		case v, ok := <-ch:
			if !ok {
				return last
			}
			last = append(last, v)
		case <-late:
			w.Fatalf("the channel was not closed")
		}
	}
}

// consume begins to consume.
func (w *world) consume(ch rabbitmq.Channel, queue string, prefetch int) <-chan amqp.Delivery {
	w.Helper()
	w.must(ch.Qos(prefetch, 0, false))
	deliveries, err := ch.ConsumeWithContext(w.Context(), queue, "", false, false, false, false, nil)
	w.must(err)
	return deliveries
}

// drain takes n messages out of queue, acknowledges them, and sees that no more come.
func (w *world) drain(queue string, n int) (got []amqp.Delivery) {
	w.Helper()
	ch := w.channel()
	deliveries := w.consume(ch, queue, 0)
	for range n {
		d := within(w, deliveries)
		w.must(d.Ack(false))
		got = append(got, d)
	}
	silent(w, deliveries)
	w.must(ch.Close())
	return got
}

func bodies(ds []amqp.Delivery) (texts []string) {
	for _, d := range ds {
		texts = append(texts, string(d.Body))
	}
	return texts
}

func (w *world) want(what string, got, want []string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

// refused checks that err, or what closed ch, is of this code.
func (w *world) refused(what string, code int, err error) {
	w.Helper()
	var a *amqp.Error
	if !errors.As(err, &a) || a.Code != code {
		w.Errorf("%s: %v, want an error with code %d", what, err, code)
		return
	}
	w.Logf("%s: %s", what, a.Reason)
}

// ready waits until queue has n messages ready.
func (w *world) ready(queue string, n int) {
	w.Helper()
	ch := w.channel()
	last := -1
	for end := time.Now().Add(patience); time.Now().Before(end); {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		w.must(err)
		if last = q.Messages; last == n {
			return
		}
		pause(w.Context(), 20*time.Millisecond)
	}
	w.Errorf("queue has %d messages, want %d", last, n)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
