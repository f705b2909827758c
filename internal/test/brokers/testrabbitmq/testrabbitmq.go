// Package testrabbitmq connects a test to a real RabbitMQ, and makes queues for it.
package testrabbitmq

import (
	"fmt"
	"net"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/test/testdb"
)

// Server returns the address of a real RabbitMQ, amqp://user:password@host:port/, whose user has all permissions.
func Server(t testing.TB) (url string) {
	t.Helper()
	url = testdb.Server(t, "TXONCE_RABBITMQ", "RabbitMQ")
	uri, err := amqp.ParseURI(url)
	if err != nil {
		t.Fatalf("TXONCE_RABBITMQ: %v", err)
	}
	testdb.Answers(t, "RabbitMQ", "tcp", net.JoinHostPort(uri.Host, fmt.Sprint(uri.Port)))
	return url
}

// Queue declares a durable queue with these arguments, such as {"x-queue-type": "quorum"}, and deletes it when the test
// ends.
func Queue(t testing.TB, url string, args amqp.Table) string {
	t.Helper()
	name := QueueName(t, url)
	err := onChannel(url, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		t.Fatalf("declare queue %s: %v", name, err)
	}
	return name
}

// QueueName returns a name for a queue or exchange that the test declares itself. A queue and an exchange of that name
// are deleted when the test ends.
func QueueName(t testing.TB, url string) string {
	t.Helper()
	name := testdb.RandomName(t)
	t.Cleanup(func() {
		err := onChannel(url, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil { // deleting a missing queue is no error
				return err
			}
			return ch.ExchangeDelete(name, false, false)
		})
		if err != nil {
			t.Errorf("delete queue and exchange %s: %v", name, err)
		}
	})
	return name
}

// Ready returns the number of messages in a queue that are waiting for delivery, without those that a consumer holds.
func Ready(t testing.TB, url, queue string) (n int) {
	t.Helper()
	err := onChannel(url, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, false, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err != nil {
		t.Fatalf("look at queue %s: %v", queue, err)
	}
	return n
}

// onChannel runs do on a new channel.
func onChannel(url string, do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
