package rabbitmq

import (
	"context"
	"errors"
	"fmt"
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

// opening is a connection that is being made, or a channel. Nobody need wait for it to the end.
type opening struct {
	done chan struct{}
	err  error // once done
}

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

// largeBytes is from where on a message might be over the server's limit, and is sent on a channel of its own: a server closes the
// channel on which it gets such a message, and all others on it are in doubt.
const largeBytes = 1 << 20

// alone sends records one after the other, on a channel that is theirs. When that is closed, it is because of the last one.
func (p *Publisher) alone(ctx context.Context, l *link, records []*record) error {
	var own *line
	defer func() { p.leave(own) }()
	refused := map[destination]error{}
	for _, r := range records {
		to := r.destination()
		if why := refused[to]; why != nil {
			r.answer(r.refusal(why))
			continue
		}
		if own == nil {
			var err error
			if own, err = p.another(ctx, l); err != nil {
				return err
			}
		}
		r.returned = nil // on a channel that is no more
		err := own.send(ctx, []*record{r})
		switch {
		case err == nil:
			p.suspect(to, false)
		case ofChannel(err):
			own = nil
			r.answer(r.refusal(err))
			if ofDestination(err) {
				refused[to] = err
				p.suspect(to, true)
			}
		default:
			return err
		}
	}
	return nil
}

// another opens one more line on l.
func (p *Publisher) another(ctx context.Context, l *link) (*line, error) {
	type opened struct {
		line *line
		err  error
	}
	done, left := make(chan opened), make(chan struct{})
	p.owns.Go(func() {
		line, err := p.open(l)
		select {
		case done <- opened{line, err}:
		case <-left:
			p.leave(line)
		}
	})
	select {
	case o := <-done:
		return o.line, o.err
	case <-ctx.Done():
		close(left)
		return nil, ctx.Err()
	}
}

// leave closes a line that was opened by another.
func (p *Publisher) leave(l *line) {
	if l != nil {
		p.owns.Go(func() { _ = l.ch.Close() })
	}
}

// maxSuspects bounds what is remembered. Who is forgotten closes a channel once more.
const maxSuspects = 1000

func (p *Publisher) suspect(d destination, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !yes {
		delete(p.suspects, d)
		return
	}
	if len(p.suspects) >= maxSuspects {
		clear(p.suspects)
	}
	p.suspects[d] = true
}

func (p *Publisher) suspected(d destination) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspects[d]
}

// acquire returns a link that works, and its line; it connects if there is none. The link must be released.
func (p *Publisher) acquire(ctx context.Context) (*link, *line, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, nil, errClosed()
		}
		if l := p.link; l != nil && l.usable() {
			l.calls++
			line := l.line
			p.mu.Unlock()
			return l, line, nil
		}
		o := p.opening
		if o == nil {
			o = &opening{done: make(chan struct{})}
			p.opening = o
			old := p.link
			p.owns.Go(func() { p.replace(o, old) })
		}
		p.mu.Unlock()
		select {
		case <-o.done:
			if o.err != nil {
				return nil, nil, p.unopened(ctx, o.err)
			}
		case <-ctx.Done():
			return nil, nil, p.unopened(ctx, nil)
		case <-p.life.Done():
			return nil, nil, errClosed()
		}
	}
}

// replace makes o of what is left of old.
func (p *Publisher) replace(o *opening, old *link) {
	defer close(o.done)
	fresh, err := old, error(nil)
	if old != nil && !old.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(p.life, connectTimeout)
		err = p.renew(ctx, old)
		cancel()
	} else {
		fresh, err = p.connect()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening = nil
	if old != nil && (err != nil || fresh != old) {
		p.retire(old)
	}
	switch {
	case err != nil:
		o.err = err
	case p.closed:
		cut(fresh.conn)
	case !fresh.retired:
		p.link, p.links[fresh] = fresh, true
	}
}

// release ends a call's use of l; stuck: with messages that have no answer.
func (p *Publisher) release(l *link, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.calls--
	if stuck {
		p.retire(l)
	}
	p.cutUnused(l)
}

// retire lets l take no more calls. p.mu is held.
func (p *Publisher) retire(l *link) {
	l.retired = true
	if p.link == l {
		p.link = nil
	}
	p.cutUnused(l)
}

// cutUnused ends l when nothing needs it any more. p.mu is held.
func (p *Publisher) cutUnused(l *link) {
	if l.retired && l.calls == 0 && p.links[l] {
		delete(p.links, l)
		p.owns.Go(func() { cut(l.conn) })
	}
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

// unopened is why there is no connection: err, or that it took too long.
func (p *Publisher) unopened(ctx context.Context, err error) error {
	switch {
	case p.life.Err() != nil:
		return errClosed()
	case err == nil:
		err = ctx.Err()
	}
	err = fmt.Errorf("rabbitmq: not sent: connect: %w", err)
	if errors.Is(err, context.Canceled) {
		return err
	}
	return unavailable(err)
}
