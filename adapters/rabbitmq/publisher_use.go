package rabbitmq

import (
	"context"
	"errors"
	"fmt"
)

// opening is a connection that is being made, or a channel. Nobody need wait for it to the end.
type opening struct {
	done chan struct{}
	err  error // once done
}

// acquire returns a link that works, and its shared channel; it connects if there is none. The link must be released.
func (p *Publisher) acquire(ctx context.Context) (*link, *confirmChannel, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, nil, errClosed()
		}
		if l := p.link; l != nil && l.usable() {
			l.calls++
			shared := l.shared
			p.mu.Unlock()
			return l, shared, nil
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
