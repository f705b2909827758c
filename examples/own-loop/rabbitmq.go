package ownloop

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
)

// receiveRabbitMQ handles messages until ctx ends or the channel is closed.
func receiveRabbitMQ(ctx context.Context, ch *amqp.Channel, queue string, orders consumer.Processor) error {
	if err := ch.Qos(20, 0, false); err != nil { // otherwise RabbitMQ sends the whole queue to this process
		return err
	}
	const autoAck = false // with true, RabbitMQ forgets a message when it sends it: a crash would lose it
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", autoAck, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := orders.Process(ctx, rabbitmq.ToMessage(queue, &d)); err != nil {
			// Process tries again by itself while the database is away, so ctx has ended. Without an ack RabbitMQ delivers it again.
			return errors.Join(d.Nack(false, true), ctx.Err())
		}
		if err := d.Ack(false); err != nil { // committed now or before, or parked in dead_letters: duplicates are acknowledged too
			return err
		}
	}
	return ctx.Err() // nil: the channel or its connection was lost
}
