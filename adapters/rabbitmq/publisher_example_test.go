package rabbitmq_test

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/outbox"
)

// Messages go to one exchange, with their topic as the routing key. One that no queue is bound for is an error, and the
// others of the call are confirmed.
func ExampleNewPublisher() {
	ctx := context.Background()
	server := rabbitmqtest.NewServer(rabbitmqtest.Config{}) // in place of rabbitmq.Dial(url, amqp.Config{})
	conn, _ := server.Dial(ctx)
	defer conn.Close()
	ch, _ := conn.Channel()
	_ = ch.ExchangeDeclare("events", "topic", true, false, false, false, nil)
	_, _ = ch.QueueDeclare("billing", true, false, false, false, nil)
	_ = ch.QueueBind("billing", "order.*", "events", false, nil)

	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: server.Dial, Exchange: "events"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close()
	for _, err := range publisher.Publish(ctx, []outbox.Message{
		// what a Relay does: relay.Config{Publisher: publisher}
		{ID: "order-1:paid", Topic: "order.paid", OrderingKey: "order-1"},
		{ID: "order-1:typo", Topic: "oder.paid", OrderingKey: "order-2"},
	}) {
		fmt.Println(err)
	}
	for _, m := range server.Messages("billing") {
		fmt.Println(m.RoutingKey, m.MessageId, m.Headers[rabbitmq.HeaderKey])
	}
	// Output:
	// <nil>
	// rabbitmq: message "order-1:typo" to exchange "events" with routing key "oder.paid": returned: 312 NO_ROUTE; bind a queue to it with a key that matches
	// order.paid order-1:paid order-1
}
