package rabbitmq_test

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
)

// printer stands for a consumer.Consumer, which has a database.
type printer struct{ done func() }

func (p printer) Process(_ context.Context, msg *consumer.Message) error {
	defer p.done()
	fmt.Println(msg.Topic, msg.ID, string(msg.Payload))
	return nil
}

// A Subscriber runs until its context ends.
func ExampleNewSubscriber() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server := rabbitmqtest.NewServer(rabbitmqtest.Config{}) // in place of rabbitmq.Dial(url, amqp.Config{})
	conn, _ := server.Dial(ctx)
	defer conn.Close()
	ch, _ := conn.Channel()
	_, _ = ch.QueueDeclare("orders", true, false, false, false, nil)
	_, _ = ch.PublishWithDeferredConfirm("", "orders", true, false,
		amqp.Publishing{MessageId: "A-1", Body: []byte("42 cents")})

	worker, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial: server.Dial, Queue: "orders",
		Processor: printer{done: stop},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx))
	// Output:
	// orders A-1 42 cents
	// <nil>
}

// Dial names the connection after the program, and has heartbeats.
func ExampleDial() {
	worker, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial:  rabbitmq.Dial("amqps://worker:secret@rabbit.internal:5671/", amqp.Config{Heartbeat: 5 * time.Second}),
		Queue: "orders", Processor: printer{},
	})
	fmt.Println(worker != nil, err)
	// Output: true <nil>
}

// A queue that drops messages after too many deliveries is refused, unless they go to a dead letter exchange.
func ExampleQueueSpec() {
	for _, spec := range []rabbitmq.QueueSpec{
		{Quorum: true, DeliveryLimit: 20},
		{Quorum: true, DeliveryLimit: 20, DeadLetters: &rabbitmq.DeadLetters{Exchange: "given-up"}},
		{Quorum: true, DeliveryLimit: rabbitmq.NoDeliveryLimit},
	} {
		_, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
			Dial: rabbitmq.Dial("amqp://localhost/", amqp.Config{}), Queue: "orders", Declare: true, Spec: spec,
			Processor: printer{},
		})
		fmt.Println(err == nil)
	}
	// Output:
	// false
	// true
	// true
}
