package rabbitmqtest_test

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/outbox"
)

// A server loses the connection after it has taken a message. The relay will send it again, with the same ID.
func ExampleServer() {
	ctx := context.Background()
	server := rabbitmqtest.NewServer(rabbitmqtest.Config{})
	conn, _ := server.Dial(ctx)
	ch, _ := conn.Channel()
	if _, err := ch.QueueDeclare("orders", true, false, false, false, nil); err != nil {
		fmt.Println(err)
	}
	times := 0
	server.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate {
		if times++; times == 1 {
			return rabbitmqtest.CutAfter
		}
		return rabbitmqtest.Take
	})
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: server.Dial})
	if err != nil {
		fmt.Println(err)
	}
	defer publisher.Close()
	msg := outbox.Message{ID: "order-7", Topic: "orders", Payload: []byte("…")}
	for publisher.Publish(ctx, []outbox.Message{msg})[0] != nil { // a relay does that, and rests between
	}
	for _, m := range server.Messages("orders") {
		fmt.Println(m.MessageId)
	}
	// Output:
	// order-7
	// order-7
}
