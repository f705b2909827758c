package awssqs

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/usercode"
)

// take starts the heartbeats of received messages and adds them to the Deliverer. A message that this process is
// already busy with goes back to SQS, each time for longer, and so do the messages behind it in its group. Here it
// would wait for its other delivery, for as long as that takes, and no other process could handle it.
func (r *reception) take(got []types.Message) {
	if len(got) == 0 {
		return
	}
	now := time.Now()
	var taken []*received
	var ds []*deliver.Delivery
	givenBack := map[string]*consumer.RetryError{} // by group
	for _, raw := range got {
		m := r.received(raw, now)
		msg := m.delivery.Message
		behind := givenBack[m.delivery.Key]
		if busy := r.inFlight.has(m.id); busy || r.queue.fifo && behind != nil {
			if behind == nil {
				behind = &consumer.RetryError{Err: errBusy, After: r.giveBackDelay(m.id), Held: true}
			}
			if r.queue.fifo {
				givenBack[m.delivery.Key] = behind
			}
			if busy {
				r.log.Warn("awssqs: SQS delivers a message again that this process is still busy with; it goes back",
					"position", msg.Position, "for", behind.After)
			}
			r.inFlight.add([]*received{m})
			r.settle(m.delivery, behind)
			continue
		}
		r.events.Received(r.requests, driver.SourceEvent{Message: msg})
		taken, ds = append(taken, m), append(ds, m.delivery)
	}
	r.flush()
	r.inFlight.add(taken)
	r.deliverer.Add(ds...)
	for _, m := range taken {
		if r.inFlight.isLost(m) { // before it was added
			r.deliverer.Lose(m.delivery)
		}
	}
}

// received makes a delivery of a message that was received at that time.
func (r *reception) received(raw types.Message, at time.Time) *received {
	m := &received{
		receipt: aws.ToString(raw.ReceiptHandle), id: aws.ToString(raw.MessageId),
		until: at.Add(r.queue.visibility), extended: at,
	}
	// SQS counts from the moment when it answered, which is not before our request
	m.end = at.Add(maxInFlight - r.cfg.WaitTime - answerWithin)
	msg := ToMessage(r.queue.name, raw)
	msg.Attempt = max(msg.Attempt-r.uncounted.Of(m.id), 1)
	m.delivery = &deliver.Delivery{Message: msg, Size: sizeOf(raw), Raw: m}
	switch {
	case r.queue.fifo:
		m.delivery.Key = group(raw)
	case r.cfg.OrderBy != nil:
		key, err := r.orderBy(msg)
		msg.OrderingKey, m.delivery.Key, msg.Malformed = key, key, errors.Join(msg.Malformed, err)
	}
	if msg.Malformed != nil {
		r.log.Warn("awssqs: a message cannot be read; the Processor gets it as it is", "position", msg.Position,
			"error", msg.Malformed)
	}
	return m
}

// giveBackDelay is how long SQS must hide a message that goes back because this process is busy with it. It grows each
// time, because SQS counts the receives. It is random: with equal intervals, the same one of several processes might
// always get the message.
func (r *reception) giveBackDelay(id string) time.Duration {
	mean := time.Duration(r.uncounted.Of(id)+1) * r.queue.visibility / 2
	return mean*3/4 + backoff.Draw(mean/2+1)
}

var errBusy = errors.New("this process is still busy with an earlier delivery of the message")

// orderBy calls the user's function, which may panic or end its goroutine. The message then has no order, and no other
// message waits.
func (r *reception) orderBy(msg *consumer.Message) (key string, err error) {
	if ended := usercode.Run(func() { key = r.cfg.OrderBy(msg) }); ended != nil {
		return "", ended.Of("awssqs: SubscriberConfig.OrderBy")
	}
	return key, nil
}
