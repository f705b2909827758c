package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message counts as published when every in-sync replica of its partition
// has confirmed it, and messages of one key go to one partition. It is safe for concurrent use.
//
// It answers for each message on its own. What the broker has not confirmed by ctx's deadline is an error, and may have
// arrived or still arrive: a repeat. The producer that such messages are stuck in takes in nothing more, and its connections
// are cut when the last running call to it has returned. So while brokers are away, no more is kept in memory than
// the calls that are running, and what was given up on is not sent minutes later.
type Publisher struct {
	conf     *sarama.Config // a copy
	addrs    func() []string
	breaker  *breaker.Breaker
	replicas replicas

	begin sync.Once
	life  context.Context // of everything that the Publisher opens; from the first Publish on
	die   context.CancelFunc
	owns  sync.WaitGroup // goroutines

	mu      sync.Mutex
	closed  bool
	current *producer
	opening *opening
}

var _ outbox.Publisher = (*Publisher)(nil)

// ErrPublisherClosed is why messages are not published after Close. It comes in an *outbox.UnavailableError, so that none
// is blamed.
var ErrPublisherClosed = errors.New("kafka: Publisher is closed")

// NewPublisher checks cfg and the settings of its Client. It does not talk to the cluster.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	conf := *cfg.Client.Config()
	return &Publisher{
		conf: &conf, addrs: addresses(cfg.Client), breaker: breaker.New(breaker.Config(cfg.Breaker)), replicas: replicas{log: cfg.Logger},
	}, nil
}

// addresses says where the brokers are: where client knows them to be, or last knew when it has been closed.
func addresses(client sarama.Client) func() []string {
	var mu sync.Mutex
	var last []string
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		var now []string
		for _, b := range client.Brokers() {
			now = append(now, b.Addr())
		}
		if len(now) > 0 {
			last = now
		}
		return last
	}
}

// Publish implements outbox.Publisher. Messages of one key must not be in two calls that run at once.
//
// Permanent errors are of messages that are too large and of topics whose name is impossible. A topic that does not exist, or that this
// client may not write to, is an *outbox.TopicError. Brokers that are out of reach, do not answer in time, or lack replicas are an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return p.breaker.Publish(ctx, msgs, p.publish)
}

func (p *Publisher) publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	p.begin.Do(func() { p.life, p.die = context.WithCancel(context.WithoutCancel(ctx)) })
	c := newCall(len(msgs))
	records := make([]*record, 0, len(msgs))
	for i := range msgs {
		r, err := p.newRecord(&msgs[i], c, i)
		if err != nil {
			c.answer(i, err)
			continue
		}
		records = append(records, r)
	}
	p.send(ctx, c, records)
	return p.alone(ctx, msgs, c.end(ctx))
}

// send gives records to the current producer, and returns when all have their answer, or none will come in time.
func (p *Publisher) send(ctx context.Context, c *call, records []*record) {
	if len(records) == 0 {
		return
	}
	producer, err := p.acquire(ctx)
	if err != nil {
		for _, r := range records {
			c.answer(r.index, err)
		}
		return
	}
	stuck := producer.send(ctx, c, records)
	p.release(producer, c, stuck)
}

// alone sends those messages again, each in a request of its own, that were refused perhaps because of others in theirs: a
// broker refuses batches, not messages. What it refuses once more is at fault itself.
func (p *Publisher) alone(ctx context.Context, msgs []outbox.Message, errs []error) []error {
	var records []*record
	c := newCall(len(msgs))
	for i, err := range errs {
		if !ofBatch(err) {
			c.answer(i, err)
			continue
		}
		r, err := p.newRecord(&msgs[i], c, i)
		if err != nil {
			c.answer(i, err)
			continue
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		return errs
	}
	if producer, err := p.lone(ctx); err != nil {
		for _, r := range records {
			c.answer(r.index, err)
		}
	} else {
		producer.send(ctx, c, records)
		p.cut(producer)
	}
	final := c.end(ctx)
	for i, err := range final {
		if ofBatch(err) {
			final[i] = outbox.Permanent(err)
		}
	}
	return final
}

// lone connects a producer that sends each message in a request of its own.
func (p *Publisher) lone(ctx context.Context) (*producer, error) {
	conf := *p.conf
	conf.Producer.Flush.Messages, conf.Producer.Flush.Bytes, conf.Producer.Flush.Frequency = 0, 0, 0
	conf.Producer.Flush.MaxMessages = 1
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed()
	}
	o := p.open(&conf)
	p.mu.Unlock()
	select {
	case <-o.done:
	case <-ctx.Done():
	case <-p.life.Done():
	}
	producer, err := o.take()
	if producer == nil {
		return nil, p.unopened(ctx, err)
	}
	return producer, nil
}

// Close ends running calls, whose unanswered messages may still arrive, and the connections. Call it when the relay has
// stopped; without it they end with the process. The Client stays open.
func (p *Publisher) Close() error {
	p.begin.Do(func() { p.die = func() {} }) // nothing was opened, and nothing will be
	p.mu.Lock()
	p.closed = true
	p.die()
	if idle := p.current; idle != nil {
		idle.retired = true
		p.current = nil
		if idle.calls == 0 { // else the last of them does it
			p.cut(idle)
		}
	}
	if o := p.opening; o != nil {
		p.opening = nil
		if producer, _ := o.take(); producer != nil {
			p.cut(producer)
		}
	}
	p.mu.Unlock()
	p.owns.Wait()
	return nil
}

// unopened is why there is no producer: err, or that it took too long.
func (p *Publisher) unopened(ctx context.Context, err error) error {
	switch {
	case p.life.Err() != nil:
		return errClosed()
	case err == nil:
		err = ctx.Err()
	}
	err = fmt.Errorf("kafka: not sent: connect to %v: %w", p.addrs(), err)
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &outbox.UnavailableError{Err: err}
}

func errClosed() error { return &outbox.UnavailableError{Err: ErrPublisherClosed} }
