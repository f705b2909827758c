package watermilltx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox through any of watermill's publishers. It is safe for concurrent use.
//
// Each message is published by a call of its own, so that each has its answer; several at a time, which keeps the order of a
// relay, as it passes one message of a key per call. watermill's Publish takes no context. A call that has not returned by
// the deadline goes on in the background: it counts as failed, and its message arrives once more when it succeeds after
// all, with the same UUID. There are never more than PublisherConfig.Concurrency such calls: while they are stuck, nothing else
// is begun.
type Publisher struct {
	cfg     PublisherConfig
	breaker *breaker.Breaker
	slots   chan struct{} // holds one for each call that runs
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher checks cfg, and what it recognises of the Publisher in it. It does not talk to a broker.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, breaker: breaker.New(breaker.Config(cfg.Breaker)), slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// Publish implements outbox.Publisher.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return p.breaker.Publish(ctx, msgs, p.publish)
}

// answer is what became of one message of a call.
type answer struct {
	index int
	err   error
}

func (p *Publisher) publish(ctx context.Context, msgs []outbox.Message) []error {
	answers := make(chan answer, len(msgs)) // room for all: the late ones find nobody
	errs, answered := make([]error, len(msgs)), make([]bool, len(msgs))
	begun := 0
	for begun < len(msgs) && ctx.Err() == nil {
		select {
		case p.slots <- struct{}{}:
			i := begun
			topic, msg := msgs[i].Topic, p.toWatermill(ctx, &msgs[i])
			go func() {
				defer func() { <-p.slots }()
				answers <- answer{i, p.call(topic, msg)}
			}()
			begun++
		case <-ctx.Done():
		}
	}
	for range begun {
		select {
		case a := <-answers:
			errs[a.index], answered[a.index] = a.err, true
			continue
		default:
		}
		select {
		case a := <-answers:
			errs[a.index], answered[a.index] = a.err, true
		case <-ctx.Done():
		}
	}
	for i := range msgs {
		if !answered[i] {
			errs[i] = p.unanswered(ctx, msgs[i].Topic, i < begun)
		}
	}
	return errs
}

// toWatermill copies: watermill may hold on to the message when Publish has returned here.
func (p *Publisher) toWatermill(ctx context.Context, m *outbox.Message) *message.Message {
	msg := message.NewMessage(p.cfg.UUID(*m), bytes.Clone(m.Payload))
	msg.Metadata = encodeMetadata(m.Headers, m.Key)
	msg.SetContext(ctx)
	return msg
}

// call turns a panic into an error, as it would end the process.
func (p *Publisher) call(topic string, msg *message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("watermilltx: topic %q: Publish of %T panics: %v\n%s", topic, p.cfg.Publisher, v, debug.Stack())
		}
	}()
	if err := p.cfg.Publisher.Publish(topic, msg); err != nil {
		return p.cfg.Classify(topic, err)
	}
	return nil
}

// unanswered is for a message whose call did not return, or was not begun, before ctx ended.
func (p *Publisher) unanswered(ctx context.Context, topic string, begun bool) error {
	err := fmt.Errorf("watermilltx: topic %q: not published, as %d calls of %T are running: %w", topic, cap(p.slots), p.cfg.Publisher, ctx.Err())
	if begun {
		err = fmt.Errorf("watermilltx: topic %q: %T did not confirm in time: %w", topic, p.cfg.Publisher, ctx.Err())
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &outbox.UnavailableError{Err: err}
}

// Drain waits for calls that have outlived their deadline. Call it when the relay has stopped, before closing watermill's
// publisher. The Publisher cannot be used afterwards. It returns ctx's error when that ends first.
func (p *Publisher) Drain(ctx context.Context) error {
	for range cap(p.slots) {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("watermilltx: calls of %T are still running: %w", p.cfg.Publisher, ctx.Err())
		}
	}
	return nil
}
