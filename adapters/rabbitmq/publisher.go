package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message counts as published when the server has confirmed it and has not returned it:
// then it is in every queue that its exchange routes it to, and there is at least one; it is persistent. It is safe for concurrent use.
//
// It answers for each message on its own. A destination that confirms nothing for 5 seconds, or three quarters of the time that a call has, is
// given up on, and holds up no other: what goes there is then sent on a channel of its own, and only when the server has confirmed what
// went there before. What the server has not confirmed by ctx's deadline is an error, and may have
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
	isolated map[destination]*isolation
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
		cfg: cfg, breaker: breaker.New(breaker.Config(cfg.Breaker)), links: map[*link]bool{},
		suspects: map[destination]bool{}, isolated: map[destination]*isolation{},
	}, nil
}

// Publish implements outbox.Publisher. Messages of one key must not be in two calls that run at once. A ctx without deadline gets one of
// outbox.DefaultPublishTimeout.
//
// Permanent errors are of messages that are too large, or whose headers are. Messages that no queue is bound for, and exchanges that do not exist
// or that the user may not write to, are an *outbox.TopicError, or a plain error where PublisherConfig.Route looks at more than the
// Topic. Plain errors are of queues that reject because they are full. A server that is out
// of reach, does not confirm in time, or blocks publishers for want of memory or disk is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	errs, rest := p.resting(msgs)
	if !rest {
		return p.breaker.Publish(ctx, msgs, p.publish)
	}
	var others []outbox.Message
	for i, m := range msgs {
		if errs[i] == nil {
			others = append(others, m)
		}
	}
	answers := p.breaker.Publish(ctx, others, p.publish)
	for i := range errs {
		if errs[i] == nil {
			errs[i], answers = answers[0], answers[1:]
		}
	}
	return errs
}

func (p *Publisher) publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	p.begin.Do(func() { p.life, p.die = context.WithCancel(context.WithoutCancel(ctx)) })
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, outbox.DefaultPublishTimeout)
		defer cancel()
	}
	errs = make([]error, len(msgs))
	records := make([]*record, len(msgs))
	var sendable []*record
	for i := range msgs {
		r, err := p.newRecord(&msgs[i])
		if err != nil {
			errs[i] = err
			continue
		}
		records[i] = r
		sendable = append(sendable, r)
	}
	if p.enter() {
		defer p.calls.Done()
		p.send(ctx, sendable)
	}
	return answersOf(ctx, records, errs)
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
	l, shared, err := p.acquire(ctx)
	if err != nil {
		for _, r := range records {
			r.answer(err)
		}
		return
	}
	waits := patience(ctx)
	err = p.through(ctx, l, shared, records, waits)
	left := unanswered(records)
	late := len(left) > 0 && ctx.Err() != nil && !errors.As(err, new(*amqp.Error))
	stuck := shared.stuck(records, waits)
	blocked := l.alarm.refuses()
	if blocked == nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.isolate(stuck)
	}
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
	p.release(l, (late || len(stuck) > 0) && blocked == nil)
}

// through sends records on l. Those that have no answer yet when it returns get none; err says why.
func (p *Publisher) through(ctx context.Context, l *link, shared *confirmChannel, records []*record, waits time.Duration) error {
	if err := l.alarm.refuses(); err != nil {
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
	many, isolated := p.takeIsolated(many)
	var probes sync.WaitGroup
	defer probes.Wait()
	for d, records := range isolated {
		probes.Go(func() { p.probe(ctx, l, d, records, waits) })
	}
	err = shared.send(ctx, many, waits)
	if ofChannel(err) { // because of one of them, or of another call's; we cannot know which
		l.forget()
		single = append(unanswered(many), single...)
		err = nil
	}
	if err != nil {
		return err
	}
	return p.alone(ctx, l, single, waits)
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
