package rabbitmq

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/outbox"
)

// ofChannel says whether a server closed a channel, and no more than that, because of something that was asked on it.
func ofChannel(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer.Server && answer.Recover
}

// ofDestination says whether the server would refuse each message to the same place.
func ofDestination(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && (answer.Code == amqp.NotFound || answer.Code == amqp.AccessRefused)
}

// refusal is what a channel was closed with because of r alone.
func (r *record) refusal(err error) error {
	named := fmt.Errorf("rabbitmq: message %q to %s: %w", r.msg.MessageId, r.where(), err)
	var answer *amqp.Error
	if !errors.As(err, &answer) {
		return named
	}
	switch answer.Code {
	case amqp.NotFound:
		return fmt.Errorf("%w; declare it, it is not created by publishing to it", named)
	case amqp.AccessRefused:
		return fmt.Errorf("%w; grant this user write permission on it", named)
	case amqp.PreconditionFailed, amqp.ContentTooLarge: // its size, that is: nothing else that we send can be wrong
		return outbox.Permanent(fmt.Errorf("%w; send less, or raise the server's max_message_size", named))
	default:
		return named
	}
}

// unroutable is a message that the server took and no queue got.
func (r *record) unroutable(back *amqp.Return) error {
	fix := "bind a queue to it with a key that matches"
	if r.exchange == "" {
		fix = "declare it; or set PublisherConfig.Exchange, if the topic is a routing key"
	}
	return fmt.Errorf("rabbitmq: message %q to %s: returned: %d %s; %s", r.msg.MessageId, r.where(), back.ReplyCode, back.ReplyText, fix)
}

// nacked is a message that a queue did not take.
func (r *record) nacked() error {
	return fmt.Errorf("rabbitmq: message %q to %s: not taken (basic.nack): a queue is full and rejects, or failed", r.msg.MessageId, r.where())
}

// lost is a message that was on its way when the connection went.
func (r *record) lost(err error) error {
	return unavailable(fmt.Errorf("rabbitmq: message %q to %s: connection lost before the confirm; the message may have arrived: %w",
		r.msg.MessageId, r.where(), err))
}

func unavailable(err error) error { return &outbox.UnavailableError{Err: err} }

func errClosed() error { return unavailable(ErrPublisherClosed) }
