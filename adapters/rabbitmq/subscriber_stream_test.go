package rabbitmq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// TestStreamIsNotReceived: where the queue's arguments may not be read, the first delivery from a stream ends Run.
func TestStreamIsNotReceived(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	queue := testrabbitmq.Queue(t, url, amqp.Table{"x-queue-type": "stream"})
	p := &answers{}
	subscribed := make(chan struct{}, 1)
	s := ownSubscriber(t, rabbitmq.SubscriberConfig{
		Queue: queue, Processor: p, Trace: &driver.SourceTrace{Subscribed: func(context.Context,
			driver.SourceEvent,
		) {
			subscribed <- struct{}{}
		}},
		Dial: func(ctx context.Context) (rabbitmq.Connection, error) {
			c, err := dialer(url)(ctx)
			return unreadable{c}, err
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-subscribed:
	case err := <-ended:
		t.Fatalf("Run = %v; want it to begin", err)
	}
	send(t, dialer(url), queue, amqp.Publishing{MessageId: "m"})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the queue is a stream") ||
		!strings.Contains(err.Error(), "grant this user configure") {
		t.Errorf("Run = %v; want that the queue is a stream", err)
	}
	if got := p.all(); len(got) > 0 {
		t.Errorf("%d messages were handled; want none", len(got))
	}
}

// unreadable is a connection of a user who may configure no queue.
type unreadable struct{ rabbitmq.Connection }

func (u unreadable) Channel() (rabbitmq.Channel, error) {
	ch, err := u.Connection.Channel()
	ch.ChannelDeclarer = noConfigure{ch.ChannelDeclarer}
	return ch, err
}

type noConfigure struct{ rabbitmq.ChannelDeclarer }

func (noConfigure) QueueDeclare(string, bool, bool, bool, bool, amqp.Table) (amqp.Queue, error) {
	return amqp.Queue{}, &amqp.Error{
		Code: amqp.AccessRefused, Reason: "ACCESS_REFUSED - access to queue refused",
		Recover: true, Server: true,
	}
}
