package rabbitmq

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/outbox"
)

// ofChannel reports whether err means that the server closed one channel, and not the connection.
func ofChannel(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer.Server && answer.Recover
}

// ofDestination reports whether the server would refuse every message to the same destination.
func ofDestination(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && (answer.Code == amqp.NotFound || answer.Code == amqp.AccessRefused)
}

// refusal is the answer to r, whose channel the server closed with err because of r.
func (r *record) refusal(err error) error {
	named := fmt.Errorf("rabbitmq: message %q to %s: %w", r.msg.MessageId, r.where(), err)
	var answer *amqp.Error
	if !errors.As(err, &answer) {
		return named
	}
	switch answer.Code {
	case amqp.NotFound:
		return r.ofTopic(r.exchange == r.topic || r.key == r.topic,
			fmt.Errorf("%w; declare it (publishing does not)", named))
	case amqp.AccessRefused:
		return r.ofTopic(r.exchange == r.topic || r.key == r.topic,
			fmt.Errorf("%w; grant this user write permission on it", named))
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		// because of its size: nothing else in a Publisher's messages can be wrong
		return outbox.Permanent(fmt.Errorf("%w; send less, or raise the server's max_message_size", named))
	default:
		return named
	}
}

// unroutable is the answer to a message that the server took and no queue got.
func (r *record) unroutable(back *amqp.Return) error {
	fix := "bind a queue to it with a key that matches"
	if r.exchange == "" {
		fix = "declare it; or set PublisherConfig.Exchange, if the topic is a routing key"
	}
	return r.ofTopic(r.key == r.topic, fmt.Errorf("rabbitmq: message %q to %s: %w: %d %s; %s", r.msg.MessageId,
		r.where(), errReturned, back.ReplyCode, back.ReplyText, fix))
}

// ofTopic returns err as the fault of r's topic, if all messages of the topic go to the destination that refuses. If
// PublisherConfig.Route looks at more than the topic, other messages of the topic may be accepted.
func (r *record) ofTopic(all bool, err error) error {
	if !all || r.topic == "" { // a copy that a Subscriber publishes has none
		return err
	}
	return &outbox.TopicError{Err: err}
}

var errReturned = errors.New("returned")

// nacked is the answer to a message that a queue refused.
func (r *record) nacked() error {
	return fmt.Errorf("rabbitmq: message %q to %s: refused (basic.nack): a queue is full, or has failed",
		r.msg.MessageId, r.where())
}

// unconfirmed is the answer to a message whose destination has confirmed nothing for limit.
func (r *record) unconfirmed(limit time.Duration) error {
	return unavailable(fmt.Errorf("rabbitmq: message %q to %s: not confirmed; the message may have arrived: the server has confirmed nothing to it for %v",
		r.msg.MessageId, r.where(), limit.Round(time.Millisecond)))
}

// lost is the answer to a message that was not confirmed when the connection was lost.
func (r *record) lost(err error) error {
	return unavailable(fmt.Errorf("rabbitmq: message %q to %s: connection lost before the confirm; the message may have arrived: %w",
		r.msg.MessageId, r.where(), err))
}

func unavailable(err error) error { return &outbox.UnavailableError{Err: err} }
