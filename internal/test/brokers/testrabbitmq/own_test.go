package testrabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// Confirmed messages survive a crash, and Eval reaches the node.
func TestOwnRabbitMQ(t *testing.T) {
	own := testrabbitmq.Start(t, "consumer_timeout = 12345000")
	queue := testrabbitmq.Queue(t, own.URL, amqp.Table{"x-queue-type": "quorum"})
	if err := publish(t.Context(), own.URL, queue); err != nil {
		t.Fatal(err)
	}
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, tick := 0, time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); n != 1 && time.Now().Before(end); <-tick.C {
		// the queue shows no messages before it has elected a leader
		n = testrabbitmq.Ready(t, own.URL, queue)
	}
	if n != 1 {
		t.Errorf("after a crash there are %d messages, want 1", n)
	}
	if got := own.Eval(t, "application:get_env(rabbit, consumer_timeout)"); !strings.Contains(got, "12345000") {
		t.Errorf("the node does not know its settings: %s", got)
	}
}

func publish(ctx context.Context, url, queue string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		// a new quorum queue may refuse early messages
		sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if ok, err := sent.WaitContext(ctx); err != nil || ok {
			return err
		}
	}
	return errors.New("not confirmed")
}
