package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// link is one connection of a Publisher, with the channel that most messages take.
type link struct {
	conn   Connection
	shared *confirmChannel // guarded by Publisher.mu
	alarm  alarm

	calls   int  // running; guarded by Publisher.mu
	retired bool // takes no more calls; likewise

	mu        sync.Mutex
	exchanges map[string]bool // that exist

	asking  sync.Mutex
	control ChannelDeclarer // on which exchanges are looked up; a missing one closes it; guarded by asking
}

// connectTimeout is for all of it, from dialling to confirm mode. Calls wait no longer than their contexts, whatever is left of it.
const connectTimeout = 10 * time.Second

// connect dials, and opens a channel.
func (p *Publisher) connect() (*link, error) {
	ctx, cancel := context.WithTimeout(p.life, connectTimeout)
	defer cancel()
	conn, err := p.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if r, ok := conn.(interface{ IsRecoveryEnabled() bool }); ok && r.IsRecoveryEnabled() {
		cut(conn)
		return nil, errors.New("the connection's amqp.Config.Recovery is set: it would open channels again behind our back, whose confirms " +
			"begin at 1 again, and hide what was lost; set it to nil, the Publisher reconnects by itself")
	}
	l := &link{conn: conn, exchanges: map[string]bool{"": true}}
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	p.owns.Go(func() {
		for b := range blocks {
			l.alarm.set(b)
		}
	})
	if err := p.renew(ctx, l); err != nil {
		cut(conn)
		return nil, err
	}
	return l, nil
}

// renew gives l a shared channel in place of one that was closed.
func (p *Publisher) renew(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, func() { cut(l.conn) })() // a server that is silent would hold us for minutes
	shared, err := p.open(l)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.shared = shared
	return nil
}

// open opens a channel in confirm mode. It hangs with the server until the connection is cut.
func (p *Publisher) open(l *link) (*confirmChannel, error) {
	ch, err := l.conn.Channel()
	if err != nil {
		return nil, err
	}
	return newConfirmChannel(ch, l.alarm.refuses, &p.owns)
}

// cut ends a connection without waiting for the server.
func cut(conn Connection) { _ = conn.CloseDeadline(time.Now()) }

// usable says whether messages may be sent on l. Publisher.mu is held.
func (l *link) usable() bool {
	if l.retired || l.conn.IsClosed() {
		return false
	}
	select {
	case <-l.shared.dead:
		return false
	default:
		return true
	}
}

// missing tells which of these exchanges do not exist. Publishing to one of them would close the channel, with all that is on its
// way; so each is looked up before it is used for the first time on a connection.
func (p *Publisher) missing(ctx context.Context, l *link, records []*record) (map[string]error, error) {
	var unsure []string
	l.mu.Lock()
	seen := map[string]bool{}
	for _, r := range records {
		if !l.exchanges[r.exchange] && !seen[r.exchange] {
			seen[r.exchange] = true
			unsure = append(unsure, r.exchange)
		}
	}
	l.mu.Unlock()
	if len(unsure) == 0 {
		return nil, nil
	}
	type answer struct {
		missing map[string]error
		err     error
	}
	answers := make(chan answer, 1)
	p.owns.Go(func() {
		missing, err := l.lookUp(unsure)
		answers <- answer{missing, err}
	})
	select {
	case a := <-answers:
		return a.missing, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lookUp asks the server about exchanges. An error is the connection's.
func (l *link) lookUp(exchanges []string) (missing map[string]error, err error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	missing = map[string]error{}
	for _, name := range exchanges {
		if l.control == nil {
			ch, err := l.conn.Channel()
			if err != nil {
				return nil, err
			}
			l.control = ch
		}
		err := l.control.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil)
		switch {
		case ofChannel(err):
			l.control = nil
			missing[name] = err
		case err != nil:
			l.control = nil
			return nil, err
		default:
			l.mu.Lock()
			l.exchanges[name] = true
			l.mu.Unlock()
		}
	}
	return missing, nil
}

// forget is for when an exchange turned out to be gone.
func (l *link) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exchanges = map[string]bool{"": true}
}
