package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// Publisher sends the messages of an outbox. A message counts as published when the server has confirmed it and has not
// returned it: then it is in every queue that its exchange routes it to, and there is at least one; it is persistent.
// It is safe for concurrent use.
//
// Each message has its own result. A destination is stalled when the server has confirmed nothing to it for 5 seconds,
// or for three quarters of the time that a call has. The call gives up on it without holding up other destinations.
// Messages to a stalled destination are sent on a channel of their own, and only when the server has confirmed what was
// sent there before. A message that the server has not confirmed by ctx's deadline gets an error. It may have arrived,
// or may still arrive; when it is published again, it is there twice, with the same MessageId. After such a timeout,
// new calls use a new connection; the old one is closed when its last running call has returned, so that no message is
// sent minutes after its call has returned.
type Publisher struct {
	cfg  PublisherConfig
	pool publishing.Pool[*link]

	mu       sync.Mutex
	suspects map[destination]bool // destinations whose last message closed its channel
	stalled  map[destination]*stall
}

var _ outbox.Publisher = (*Publisher)(nil)

// ErrPublisherClosed is the reason why messages are not published after Close. An *outbox.UnavailableError wraps it, so
// that no attempt is counted.
var ErrPublisherClosed = errors.New("rabbitmq: Publisher is closed")

// NewPublisher returns a Publisher, or an error that names all fields of cfg that are at fault. It does not connect.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, suspects: map[destination]bool{}, stalled: map[destination]*stall{}}
	p.pool = publishing.Pool[*link]{
		Open: p.open, Usable: (*link).usable, Cut: (*link).cut, Closed: ErrPublisherClosed,
		Unopened: func(err error) error { return fmt.Errorf("rabbitmq: not sent: connect: %w", err) },
	}
	return p, nil
}

// Publish implements outbox.Publisher. Messages of one key must not be in two calls that run at once. A ctx without
// deadline gets one of 10 seconds.
//
// The error of a message that is too large, or has too large headers, is Permanent. When no queue is bound for a
// message, or its exchange does not exist or may not be written to, the error is an *outbox.TopicError, or a plain
// error if PublisherConfig.Route looks at more than the Topic. A full queue that rejects the message is a plain error.
// When the server cannot be reached, does not confirm in time, or blocks publishers because it is short of memory or
// disk, the error is an *outbox.UnavailableError.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (errs []error) {
	return publishing.Publish(ctx, "rabbitmq", msgs, p.send)
}

func (p *Publisher) send(ctx context.Context, c *publishing.Call, messages []int, _ bool) {
	records := make([]*record, 0, len(messages))
	for _, i := range messages {
		r, err := p.newRecord(&c.Messages[i])
		if err != nil {
			c.Answer(i, err)
			continue
		}
		r.then = func(err error) { c.Answer(i, err) }
		records = append(records, r)
	}
	if len(records) == 0 {
		return
	}
	client, err := p.pool.Acquire(ctx)
	if err != nil {
		answerAll(records, err)
		return
	}
	broken := p.sendOn(ctx, client.C, records)
	p.pool.Release(client, broken)
}

// sendOn sends records on l, and answers each of them. broken means that l holds messages whose calls have ended.
func (p *Publisher) sendOn(ctx context.Context, l *link, records []*record) (broken bool) {
	shared, limit := l.channel(), stallLimit(ctx)
	err := p.route(ctx, l, shared, records, limit)
	left := unanswered(records)
	late := len(left) > 0 && ctx.Err() != nil && !errors.As(err, new(*amqp.Error))
	stalled := shared.stalled(records, limit)
	blocked := l.alarm.refuses()
	if blocked == nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.addStalled(stalled)
	}
	for _, r := range left {
		switch {
		case blocked != nil:
			r.answer(blocked)
		case errors.As(err, new(*outbox.UnavailableError)):
			r.answer(err)
		case late:
			r.answer(publishing.Ended(ctx, fmt.Sprintf("rabbitmq: message %q to %s: not confirmed; the message may have arrived", r.msg.MessageId, r.where())))
		default:
			r.answer(r.lost(err))
		}
	}
	// A blocked connection stays open, because the server announces the end of the block on it.
	return (late || len(stalled) > 0) && blocked == nil
}

// route sends each record on the channel that suits it. It may leave records unanswered; its error is the reason.
func (p *Publisher) route(ctx context.Context, l *link, shared *confirmChannel, records []*record,
	limit time.Duration,
) error {
	if err := l.alarm.refuses(); err != nil {
		return err
	}
	missing, err := p.missing(ctx, l, records)
	if err != nil {
		return err
	}
	var many, isolated []*record
	stalled := map[destination][]*record{}
	for _, r := range records {
		to := r.destination()
		switch why, state := missing[r.exchange], p.stateOf(to); {
		case why != nil:
			r.answer(r.refusal(why))
		case state == stalledWaiting:
			r.answer(to.waits())
		case len(r.msg.Body) > largeBytes || state == suspect:
			isolated = append(isolated, r)
		case state == stalledReady:
			stalled[to] = append(stalled[to], r)
		default:
			many = append(many, r)
		}
	}
	var probes sync.WaitGroup
	defer probes.Wait()
	for to, records := range stalled {
		probes.Go(func() { p.probe(ctx, l, to, records, limit) })
	}
	err = shared.send(ctx, many, limit)
	if ofChannel(err) {
		// one of these messages closed the channel, or one of another call; the server does not say which
		l.forgetExchanges()
		isolated = append(unanswered(many), isolated...)
		err = nil
	}
	if err != nil {
		return err
	}
	return p.sendIsolated(ctx, l, isolated, limit)
}

// Close ends running calls, whose unanswered messages may still arrive, and the connection. Call it when the relay has
// stopped.
func (p *Publisher) Close() error {
	p.pool.Close()
	return nil
}
