package rabbitmq_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
)

// The server delivers a key's messages again on the next connection while a handler of the lost one still runs. Its
// failure must not hold back these messages: nothing would handle them while the connection lasts, and later ones would
// pass them.
func TestOrderedAfterALostConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
		var handled []string
		first := true
		p := &answers{say: func(_ context.Context, msg *consumer.Message) error {
			if first {
				first = false
				<-time.After(30 * time.Second) // it does not notice that its context has ended
				return &consumer.RetryError{Err: errors.New("the transaction has ended"), Held: true}
			}
			handled = append(handled, msg.ID)
			return nil
		}}
		sub, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
			Dial: s.Dial, Queue: workQueue, Processor: p, Declare: true,
			Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}, Ordered: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sub.Run(ctx) }()
		lapse(time.Second)
		message := func(id string) amqp.Publishing {
			return amqp.Publishing{MessageId: id, Headers: amqp.Table{rabbitmq.HeaderKey: "account-1"}}
		}
		send(t, s.Dial, workQueue, message("a"), message("b"))
		lapse(time.Second)
		s.Cut()
		lapse(time.Minute)
		send(t, s.Dial, workQueue, message("c"))
		lapse(time.Minute)
		if want := []string{"a", "b", "c"}; !slices.Equal(handled, want) {
			t.Errorf("handled %v after a lost connection, want %v", handled, want)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}
