package main

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// leftInASilentQueue: Left does not count a silent retry queue as empty, though RabbitMQ reports it so. The queue is
// silent for longer than the time between Left's two counts.
func leftInASilentQueue(t *testing.T, server *testrabbitmq.Own) {
	b := newRabbitMQ(server.URL, "orders")
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if left, err := b.Left(t.Context()); err != nil || left != 0 {
		t.Errorf("%d are left (%v); want none", left, err)
	}
	retries := rabbitmq.RetryQueues(b.orders)[0]
	if err := b.onChannel(func(ch *amqp.Channel) error { return putOffForLong(ch, b.orders, retries) }); err != nil {
		t.Fatal(err)
	}
	server.Eval(t, fmt.Sprintf(`P = whereis('%%2F_%s'), ok = sys:suspend(P), spawn(fun() -> timer:sleep(8000), sys:resume(P) end)`, retries))
	if left, err := b.Left(t.Context()); err != nil || left != 1 {
		t.Errorf("%d are left (%v); want the one that is put off", left, err)
	}
	eventually(t, func() bool { // the Get returned the message
		n, err := b.ready(retries)
		return err == nil && n == 1
	}, func() string { return "the message is gone" })
}

// putOffForLong puts one message into a retry queue, where it stays.
func putOffForLong(ch *amqp.Channel, orders, retries string) error {
	if err := rabbitmq.DeclareRetryQueues(ch, orders, time.Second); err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for { // a new quorum queue may refuse early messages
		confirmation, err := ch.PublishWithDeferredConfirm("", retries, true, false,
			amqp.Publishing{Body: []byte("{}")})
		if err != nil || confirmation.Wait() {
			return err
		}
	}
}
