package rabbitmq

import (
	"context"
	"time"
)

// largeBytes is from where on a message might be over the server's limit, and is sent on a channel of its own: a server closes the
// channel on which it gets such a message, and all others on it are in doubt.
const largeBytes = 1 << 20

// alone sends records one after the other, on a channel that is theirs. When that is closed, it is because of the last one.
func (p *Publisher) alone(ctx context.Context, l *link, records []*record, waits time.Duration) error {
	var own *confirmChannel
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
		err := own.send(ctx, []*record{r}, waits)
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

// another opens one more channel on l.
func (p *Publisher) another(ctx context.Context, l *link) (*confirmChannel, error) {
	type opened struct {
		channel *confirmChannel
		err     error
	}
	done, left := make(chan opened), make(chan struct{})
	p.owns.Go(func() {
		channel, err := p.open(l)
		select {
		case done <- opened{channel, err}:
		case <-left:
			p.leave(channel)
		}
	})
	select {
	case o := <-done:
		return o.channel, o.err
	case <-ctx.Done():
		close(left)
		return nil, ctx.Err()
	}
}

// leave closes a channel that was opened by another.
func (p *Publisher) leave(c *confirmChannel) {
	if c != nil {
		p.owns.Go(func() { _ = c.ch.Close() })
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
