package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message counts as published when every in-sync replica of its partition
// has confirmed it, and messages of one key go to one partition. It is safe for concurrent use.
//
// Each message has its own result. A message that the broker has not confirmed by ctx's deadline gets an error. It may
// have arrived, or may still arrive; when it is published again, it is there twice. After such a timeout, new calls use
// a new producer; the old one is closed when its last running call has returned. So while brokers are away, memory
// holds only the messages of running calls, and no message is sent minutes after its call has returned.
type Publisher struct {
	conf     *sarama.Config // a copy
	addrs    func() []string
	replicas replicas
	pool     publishing.Pool[*producer]
}

var _ outbox.Publisher = (*Publisher)(nil)

// ErrPublisherClosed is the reason why messages are not published after Close. An *outbox.UnavailableError wraps it, so
// that no attempt is counted.
var ErrPublisherClosed = errors.New("kafka: Publisher is closed")

// NewPublisher returns a Publisher, or an error that names all fields of cfg, and settings of its Client, that are at
// fault. It does not talk to the cluster.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	conf := *cfg.Client.Config()
	p := &Publisher{conf: &conf, addrs: addresses(cfg.Client), replicas: replicas{log: cfg.Logger}}
	p.pool = publishing.Pool[*producer]{
		Open:   func(life context.Context, _ *producer) (*producer, error) { return p.connect(life, p.conf) },
		Cut:    (*producer).cut,
		Closed: ErrPublisherClosed,
		Unopened: func(err error) error {
			return fmt.Errorf("kafka: not sent: connect to %v: %w", p.addrs(), err)
		},
	}
	return p, nil
}

// addresses returns a function that returns the addresses of the brokers that client knows, or last knew when it has
// been closed.
func addresses(client sarama.Client) func() []string {
	var mu sync.Mutex
	var last []string
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		if now := addressesOf(client); len(now) > 0 {
			last = now
		}
		return last
	}
}

func addressesOf(client sarama.Client) (addrs []string) {
	for _, b := range client.Brokers() {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// Publish implements outbox.Publisher. Messages of one key must not be in two calls that run at once. A ctx without
// deadline gets one of 10 seconds.
//
// The error of a message that is too large, or whose topic has an impossible name, is Permanent. When the topic does
// not exist, or this client may not write to it, the error is an *outbox.TopicError. When brokers cannot be reached, do
// not answer in time, or lack replicas, it is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return publishing.Publish(ctx, "kafka", msgs, p.send)
}

// send publishes messages with the current producer. A broker refuses batches, not messages: isolated messages go
// through a producer of their own, which sends each in a request of its own.
func (p *Publisher) send(ctx context.Context, c *publishing.Call, messages []int, isolated bool) {
	records := make([]*record, 0, len(messages))
	for _, i := range messages {
		r, err := p.newRecord(&c.Messages[i], c, i)
		if err != nil {
			c.Answer(i, err)
			continue
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		return
	}
	client, err := p.pool.Acquire(ctx)
	if err == nil {
		stuck := false
		if isolated {
			err = p.sendIsolated(ctx, c, records)
		} else {
			stuck = client.C.send(ctx, c, records)
		}
		if p.pool.Life().Err() != nil {
			err = p.pool.Failed(nil)
		}
		p.pool.Release(client, stuck || client.C.topics.broken(c.Confirmed()))
	}
	if err != nil {
		c.AnswerAll(messages, err)
	}
}

// sendIsolated sends each record in a request of its own.
func (p *Publisher) sendIsolated(ctx context.Context, c *publishing.Call, records []*record) error {
	conf := *p.conf
	conf.Producer.Flush.Messages, conf.Producer.Flush.Bytes, conf.Producer.Flush.Frequency = 0, 0, 0
	conf.Producer.Flush.MaxMessages = 1
	life := p.pool.Life()
	open := func() (*producer, error) { return p.connect(life, &conf) }
	own, err := publishing.Background(ctx, &p.pool, open, p.pool.Discard)
	if err != nil {
		return p.pool.Failed(err)
	}
	own.send(ctx, c, records)
	p.pool.Discard(own)
	return nil
}

// Close ends running calls and closes the connections. Messages of these calls may still arrive. Call Close when the
// relay has stopped. The Client stays open.
func (p *Publisher) Close() error {
	p.pool.Close()
	return nil
}
