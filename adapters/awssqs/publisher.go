package awssqs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message's Topic is the name of a queue of the Client's account and region, or the URL
// of any. A message counts as published when SQS has answered for it by name that it has it. It is safe for concurrent use, and
// needs no closing.
//
// To a FIFO queue, whose name ends in .fifo, it sends a message's Key as its group and its ID as its deduplication id, so that SQS
// itself drops what arrives twice within five minutes, and order within a key is kept. A standard queue promises no order.
type Publisher struct {
	client  API
	breaker *breaker.Breaker
	places  chan struct{} // held by each batch on its way

	mu   sync.Mutex
	urls map[string]string // of queues, by topic
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher checks cfg and the Client's options. It does not talk to SQS.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		client: cfg.Client, breaker: breaker.New(breaker.Config(cfg.Breaker)),
		places: make(chan struct{}, cfg.Concurrency), urls: make(map[string]string),
	}, nil
}

// Publish implements outbox.Publisher. Messages of one key must be neither in one call nor in two that run at once.
//
// Permanent errors are of messages that are too large or otherwise refused for what they contain, and of topics that can be no
// queue. A queue that does not exist, or that this Client may not send to, is an *outbox.TopicError. That SQS is out of reach, answers with
// a fault of its own, throttles, or knows none of the Client's credentials is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return p.breaker.Publish(ctx, msgs, p.publish)
}

// publish sends to all queues side by side, and to each its batches side by side.
func (p *Publisher) publish(ctx context.Context, msgs []outbox.Message) []error {
	c := &call{publisher: p, msgs: msgs, errs: make([]error, len(msgs))}
	byTopic := make(map[string][]int)
	for i, m := range msgs {
		byTopic[m.Topic] = append(byTopic[m.Topic], i)
	}
	var queues sync.WaitGroup
	for topic, of := range byTopic {
		queues.Go(func() { c.queue(ctx, topic, of) })
	}
	queues.Wait()
	return c.errs
}

// call is one Publish. Each message belongs to one goroutine at a time, and so does its error.
type call struct {
	publisher *Publisher
	msgs      []outbox.Message
	errs      []error
}

// queue sends the messages of one topic.
func (c *call) queue(ctx context.Context, topic string, of []int) {
	url, err := c.publisher.url(ctx, topic)
	if err != nil {
		for _, i := range of {
			c.errs[i] = err
		}
		return
	}
	var ready []*entry
	for _, i := range of {
		e, err := newEntry(&c.msgs[i], i)
		if err != nil {
			c.errs[i] = err
			continue
		}
		ready = append(ready, e)
	}
	var batches sync.WaitGroup
	for _, b := range split(ready) {
		batches.Go(func() { c.batch(ctx, topic, url, b) })
	}
	batches.Wait()
}

// batch sends up to ten messages. Those of a batch that is refused as a whole, perhaps because of one, are sent again, each alone.
func (c *call) batch(ctx context.Context, topic, url string, b []*entry) {
	err := c.send(ctx, topic, url, b)
	if err == nil {
		return
	}
	if !ofBatch(err) || len(b) == 1 {
		for _, e := range b {
			c.errs[e.index] = alone(err, e)
		}
		return
	}
	for i := range b {
		if err := c.send(ctx, topic, url, b[i:i+1]); err != nil {
			c.errs[b[i].index] = alone(err, b[i])
		}
	}
}

// send is one request. An error is that of all its messages; otherwise each has its own.
func (c *call) send(ctx context.Context, topic, url string, b []*entry) error {
	select {
	case c.publisher.places <- struct{}{}:
		defer func() { <-c.publisher.places }()
	case <-ctx.Done():
		return unsent(ctx, topic)
	}
	if ctx.Err() != nil {
		return unsent(ctx, topic)
	}
	in := &sqs.SendMessageBatchInput{QueueUrl: &url}
	open := make(map[string]*entry, len(b))
	for _, e := range b {
		in.Entries = append(in.Entries, e.SendMessageBatchRequestEntry)
		open[*e.Id] = e
	}
	out, err := c.publisher.client.SendMessageBatch(ctx, in)
	if err != nil {
		if missingQueue(err) {
			c.publisher.forget(topic, url)
		}
		return classify(ctx, topic, "sqs:SendMessage", err)
	}
	for _, failed := range out.Failed {
		if e := take(open, failed.Id); e != nil {
			c.errs[e.index] = refused(topic, &failed, e)
		}
	}
	for _, sent := range out.Successful {
		take(open, sent.Id)
	}
	for _, e := range open {
		c.errs[e.index] = fmt.Errorf("awssqs: queue %s: SQS has answered for other messages of the batch, and not for this one; it may have arrived", topic)
	}
	return nil
}

// take removes an entry that is answered for.
func take(open map[string]*entry, id *string) *entry {
	if id == nil {
		return nil
	}
	e := open[*id]
	delete(open, *id)
	return e
}

// unsent is a message that there was no time for.
func unsent(ctx context.Context, topic string) error {
	err := fmt.Errorf("awssqs: queue %s: not sent: %w", topic, context.Cause(ctx))
	if errors.Is(ctx.Err(), context.Canceled) { // the relay stops, which is nobody's fault
		return err
	}
	return &outbox.UnavailableError{Err: err}
}
