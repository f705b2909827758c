package awssqs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message's Topic is the name of a queue of the Client's account and
// region, or the URL of any queue. A message counts as published when SQS has listed it as successful. It is safe for
// concurrent use, and needs no closing.
//
// To a FIFO queue, whose name ends in .fifo, it sends a message's OrderingKey as its group and its ID as its
// deduplication id. So SQS keeps the order within a key, and drops a message that arrives twice within five minutes. A
// standard queue promises no order.
type Publisher struct {
	client API
	places chan struct{} // holds one for each running request

	mu   sync.Mutex
	urls map[string]string // of queues, by topic
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher, or an error that names all fields of cfg that are at fault. It does not talk to
// SQS.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		client: cfg.Client, places: make(chan struct{}, cfg.Concurrency),
		urls: make(map[string]string),
	}, nil
}

// Publish implements outbox.Publisher. Messages of one key must be neither in one call nor in two that run at once. A
// ctx without deadline gets one of 10 seconds.
//
// The error of a message that is too large, or that SQS refuses because of its contents, is Permanent, and so is that
// of a topic that cannot be a queue. When the queue does not exist, or this Client may not send to it, the error is an
// *outbox.TopicError. When SQS cannot be reached, has a fault of its own, throttles, or does not know the Client's
// credentials, it is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return publishing.Publish(ctx, "awssqs", msgs, p.send)
}

// send sends to all queues side by side, and to each its batches side by side.
func (p *Publisher) send(ctx context.Context, c *publishing.Call, messages []int, _ bool) {
	byTopic := make(map[string][]int)
	for _, i := range messages {
		topic := c.Messages[i].Topic
		byTopic[topic] = append(byTopic[topic], i)
	}
	var queues sync.WaitGroup
	for topic, of := range byTopic {
		queues.Go(func() { p.sendTo(ctx, topic, c, of) })
	}
	queues.Wait()
}

// sendTo sends messages of one topic in batches.
func (p *Publisher) sendTo(ctx context.Context, topic string, c *publishing.Call, messages []int) {
	url, err := p.url(ctx, topic)
	if err != nil {
		c.AnswerAll(messages, err)
		return
	}
	var ready []*entry
	for _, i := range messages {
		e, err := newEntry(&c.Messages[i], i)
		if err != nil {
			c.Answer(i, err)
			continue
		}
		ready = append(ready, e)
	}
	var batches sync.WaitGroup
	for _, b := range split(ready, maxBatch) {
		batches.Go(func() { p.sendOrSplit(ctx, topic, url, c, b) })
	}
	batches.Wait()
}

// sendOrSplit sends b. If SQS refuses b as a whole, each message is sent by itself at once: later, another queue may
// have used up the time of the call.
func (p *Publisher) sendOrSplit(ctx context.Context, topic, url string, c *publishing.Call, b []*entry) {
	err := p.sendBatch(ctx, topic, url, c, b)
	if len(b) > 1 && ctx.Err() == nil && errors.As(err, new(*publishing.BatchError)) {
		var singles sync.WaitGroup
		for _, e := range b {
			singles.Go(func() { p.sendOrSplit(ctx, topic, url, c, []*entry{e}) })
		}
		singles.Wait()
		return
	}
	for _, e := range b {
		if err != nil {
			c.Answer(e.index, err)
		}
	}
}

// sendBatch is one request. Its error is the answer to every message of b; otherwise each message has its own.
func (p *Publisher) sendBatch(ctx context.Context, topic, url string, c *publishing.Call, b []*entry) error {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
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
	out, err := p.client.SendMessageBatch(ctx, in)
	if err != nil {
		if missingQueue(err) {
			p.forget(topic, url)
		}
		if err = classify(ctx, topic, "sqs:SendMessage", err); len(b) == 1 {
			err = refusedAlone(err, b[0])
		}
		return err
	}
	for _, failed := range out.Failed {
		if e := take(open, failed.Id); e != nil {
			c.Answer(e.index, refused(topic, &failed, e))
		}
	}
	for _, sent := range out.Successful {
		if e := take(open, sent.Id); e != nil {
			c.Answer(e.index, nil)
		}
	}
	for _, e := range open {
		c.Answer(e.index, fmt.Errorf("awssqs: queue %s: SQS has answered for other messages of the batch, and not for this one; it may have arrived", topic))
	}
	return nil
}

// take removes and returns the entry with that id, or nil if it was answered already.
func take(open map[string]*entry, id *string) *entry {
	e := open[aws.ToString(id)]
	delete(open, aws.ToString(id))
	return e
}

// unsent is the answer to a message that was not sent because the time was up.
func unsent(ctx context.Context, topic string) error {
	return publishing.Ended(ctx, fmt.Sprintf("awssqs: queue %s: not sent", topic))
}
