package watermilltx

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox through any of watermill's publishers. It is safe for concurrent use.
//
// It publishes several messages at a time, each with a call of its own, so that each message has its own result. That
// keeps the order within a key, because a relay passes one message of a key per call. watermill's Publish takes no
// context. A call that has not returned by the deadline goes on in the background: it counts as failed, and if it
// succeeds after all, its message arrives twice, with the same UUID. There are never more than
// PublisherConfig.Concurrency such calls: while all of them hang, no message is sent.
type Publisher struct {
	cfg   PublisherConfig
	slots chan struct{} // holds one for each call that runs
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher, or an error that names the field of cfg that is at fault. It does not talk to a
// broker.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// Publish implements outbox.Publisher. A ctx without deadline gets one of 10 seconds.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return publishing.Publish(ctx, "watermilltx", msgs, p.send)
}

func (p *Publisher) send(ctx context.Context, c *publishing.Call, messages []int, _ bool) {
	for n, i := range messages {
		if !p.begin(ctx, c, i) {
			for _, i := range messages[n:] {
				c.Answer(i, publishing.Ended(ctx, fmt.Sprintf("watermilltx: topic %q: not published, as %d calls of %T are running",
					c.Messages[i].Topic, cap(p.slots), p.cfg.Publisher)))
			}
			break
		}
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
}

// begin publishes message i in a goroutine. It returns false if ctx has ended before there was room for it.
func (p *Publisher) begin(ctx context.Context, c *publishing.Call, i int) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	m := c.Messages[i] // a copy: the call may go on after Publish has returned
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	go func() {
		defer func() { <-p.slots }()
		p.call(ctx, m, func(err error) { c.Answer(i, err) })
	}()
	return true
}

// call publishes one message and answers for it, also when a function of the user panics or ends the goroutine.
func (p *Publisher) call(ctx context.Context, m outbox.Message, answer func(error)) {
	running := "PublisherConfig.UUID"
	var err error
	ended := usercode.Run(func() {
		msg := message.NewMessage(p.cfg.UUID(m), m.Payload)
		msg.Metadata = encodeMetadata(m.Headers, m.OrderingKey)
		msg.SetContext(ctx)
		running = "Publish"
		if err = p.cfg.Publisher.Publish(m.Topic, msg); err != nil {
			running = "PublisherConfig.Classify"
			err = p.cfg.Classify(m.Topic, usercode.Error(err))
		}
	})
	if ended != nil {
		err = fmt.Errorf("%w\n%s", ended.Of(fmt.Sprintf("watermilltx: topic %q, publisher %T: %s", m.Topic,
			p.cfg.Publisher, running)), ended.Stack)
	}
	answer(usercode.Error(err))
}

// Drain waits for calls that have outlived their deadline. Call it when the relay has stopped, before closing
// watermill's publisher. The Publisher cannot be used afterwards. It returns ctx's error when that ends first.
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
