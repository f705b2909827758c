package rabbitmq

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/publishing"
)

// largeBytes is the least size of a message that might be over the server's limit. Such a message is isolated: a server
// that gets a message that is too large closes its channel, and does not say which messages on that channel it has
// taken.
const largeBytes = 1 << 20

// sendIsolated sends records one after the other, on a channel that no others use. When the server closes it, the last
// record was at fault.
func (p *Publisher) sendIsolated(ctx context.Context, l *link, records []*record, limit time.Duration) error {
	var own *confirmChannel
	defer func() { p.closeChannel(own) }()
	refused := map[destination]error{}
	for _, r := range records {
		to := r.destination()
		if why := refused[to]; why != nil {
			r.answer(r.refusal(why))
			continue
		}
		if own == nil {
			var err error
			if own, err = p.openChannel(ctx, l); err != nil {
				return err
			}
		}
		err := own.send(ctx, []*record{r}, limit)
		switch {
		case err == nil:
			p.setSuspect(to, false)
		case ofChannel(err):
			own = nil
			r.answer(r.refusal(err))
			if ofDestination(err) {
				refused[to] = err
				p.setSuspect(to, true)
			}
		default:
			return err
		}
	}
	return nil
}

// openChannel opens one more channel on l.
func (p *Publisher) openChannel(ctx context.Context, l *link) (*confirmChannel, error) {
	open := func() (*confirmChannel, error) { return openConfirmChannel(l.conn, l.alarm.refuses, p.pool.Go) }
	return publishing.Background(ctx, &p.pool, open, p.closeChannel)
}

// closeChannel closes a channel that openChannel opened, or does nothing for nil.
func (p *Publisher) closeChannel(c *confirmChannel) {
	if c != nil {
		p.pool.Go(func() { _ = c.ch.Close() })
	}
}

// maxSuspects bounds the map. A destination that is dropped from it closes a channel once more.
const maxSuspects = 1000

// setSuspect remembers whether the last message to d closed its channel.
func (p *Publisher) setSuspect(d destination, yes bool) {
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
