package rabbitmq

import (
	"context"
	"errors"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message counts as published when the server has confirmed it and has not returned it:
// then it is in every queue that its exchange routes it to, and there is at least one; it is persistent. It is safe for concurrent use.
//
// It answers for each message on its own. What the server has not confirmed by ctx's deadline is an error, and may have
// arrived or still arrive: a repeat, with the same MessageId. The connection that such messages are stuck in takes in nothing more, and
// is cut when the last running call to it has returned, so that what was given up on is not sent minutes later.
type Publisher struct {
	cfg     PublisherConfig
	breaker *breaker.Breaker

	begin sync.Once
	life  context.Context // of everything that the Publisher opens; from the first Publish on
	die   context.CancelFunc
	calls sync.WaitGroup
	owns  sync.WaitGroup // goroutines, begun by calls or each other

	mu       sync.Mutex
	closed   bool
	link     *link          // that takes calls
	links    map[*link]bool // all that are not cut
	opening  *opening
	suspects map[destination]bool // of which the last message closed its channel
}

var _ outbox.Publisher = (*Publisher)(nil)

// ErrPublisherClosed is why messages are not published after Close. It comes in an *outbox.UnavailableError, so that none
// is blamed.
var ErrPublisherClosed = errors.New("rabbitmq: Publisher is closed")

// NewPublisher checks cfg. It does not connect.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		cfg: cfg, breaker: breaker.New(breaker.Config(cfg.Breaker)), links: map[*link]bool{}, suspects: map[destination]bool{},
	}, nil
}

// Publish implements outbox.Publisher. Messages of one key must not be in two calls that run at once. A ctx without deadline gets one of
// outbox.DefaultPublishTimeout.
//
// Permanent errors are of messages that are too large, or whose headers are. Plain errors are of messages that no queue is bound for,
// of exchanges that do not exist or that the user may not write to, and of queues that reject because they are full. A server that is out
// of reach, does not confirm in time, or blocks publishers for want of memory or disk is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return p.breaker.Publish(ctx, msgs, p.publish)
}

func (p *Publisher) publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	p.begin.Do(func() { p.life, p.die = context.WithCancel(context.WithoutCancel(ctx)) })
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, outbox.DefaultPublishTimeout)
		defer cancel()
	}
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
	if p.enter() {
		defer p.calls.Done()
		p.send(ctx, records)
	}
	return c.end(ctx)
}

// enter begins a call, unless the Publisher is closed.
func (p *Publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// send gets an answer for each record, unless ctx ends.
func (p *Publisher) send(ctx context.Context, records []*record) {
	if len(records) == 0 {
		return
	}
	l, line, err := p.acquire(ctx)
	if err != nil {
		for _, r := range records {
			r.answer(err)
		}
		return
	}
	err = p.through(ctx, l, line, records)
	left := unknown(records)
	late := len(left) > 0 && ctx.Err() != nil && !errors.As(err, new(*amqp.Error))
	blocked := l.refuses()
	for _, r := range left {
		switch {
		case blocked != nil:
			r.answer(blocked)
		case errors.As(err, new(*outbox.UnavailableError)):
			r.answer(err)
		case !late:
			r.answer(r.lost(err))
		}
	}
	// A connection that is blocked stays: it is the one that hears when it is over.
	p.release(l, late && blocked == nil)
}

// through sends records on l. Those that have no answer yet when it returns get none; err says why.
func (p *Publisher) through(ctx context.Context, l *link, line *line, records []*record) error {
	if err := l.refuses(); err != nil {
		return err
	}
	missing, err := p.missing(ctx, l, records)
	if err != nil {
		return err
	}
	var many, single []*record
	for _, r := range records {
		switch why := missing[r.exchange]; {
		case why != nil:
			r.answer(r.refusal(why))
		case len(r.msg.Body) > largeBytes || p.suspected(r.destination()):
			single = append(single, r)
		default:
			many = append(many, r)
		}
	}
	err = line.send(ctx, many)
	if ofChannel(err) { // because of one of them, or of another call's; we cannot know which
		l.forget()
		single = append(unknown(many), single...)
		err = nil
	}
	if err != nil {
		return err
	}
	return p.alone(ctx, l, single)
}

// Close ends running calls, whose unanswered messages may still arrive, and the connection. Call it when the relay has stopped.
func (p *Publisher) Close() error {
	p.begin.Do(func() { p.die = func() {} }) // nothing was opened, and nothing will be
	p.mu.Lock()
	p.closed = true
	p.die()
	links := p.links
	p.link, p.links = nil, nil
	p.mu.Unlock()
	for l := range links {
		cut(l.conn)
	}
	p.calls.Wait()
	p.owns.Wait()
	return nil
}
