package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// link is one connection of a Publisher, with the channel that most messages take.
type link struct {
	conn Connection
	line *line // guarded by Publisher.mu

	calls   int  // running; guarded by Publisher.mu
	retired bool // takes no more calls; likewise

	mu        sync.Mutex
	blocked   string          // why the server takes nothing in
	exchanges map[string]bool // that exist

	asking  sync.Mutex
	control Channel // on which exchanges are looked up; a missing one closes it; guarded by asking
}

// connectTimeout is for all of it, from dialling to confirm mode. Calls wait no longer than their contexts, whatever is left of it.
const connectTimeout = 10 * time.Second

// connect dials, and opens a line.
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
			l.block(b)
		}
	})
	if err := p.renew(ctx, l); err != nil {
		cut(conn)
		return nil, err
	}
	return l, nil
}

// renew gives l a line in place of one that was closed.
func (p *Publisher) renew(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, func() { cut(l.conn) })() // a server that is silent would hold us for minutes
	line, err := p.open(l)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.line = line
	return nil
}

// open makes a line on a channel of its own. It hangs with the server until the connection is cut.
func (p *Publisher) open(l *link) (*line, error) {
	ch, err := l.conn.Channel()
	if err != nil {
		return nil, err
	}
	return newLine(p.life, ch, &p.owns)
}

// cut ends a connection without waiting for the server.
func cut(conn Connection) { _ = conn.CloseDeadline(time.Now()) }

func (l *link) block(b amqp.Blocking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = ""
	if b.Active {
		l.blocked = b.Reason
		if l.blocked == "" {
			l.blocked = "no reason given"
		}
	}
}

// refuses is an error while the server takes nothing in.
func (l *link) refuses() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked == "" {
		return nil
	}
	return unavailable(fmt.Errorf("rabbitmq: the server blocks all who publish (connection.blocked): %s", l.blocked))
}

// usable says whether messages may be sent on l. Publisher.mu is held.
func (l *link) usable() bool {
	if l.retired || l.conn.IsClosed() {
		return false
	}
	select {
	case <-l.line.dead:
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
			if l.control, err = l.conn.Channel(); err != nil {
				l.control = nil
				return nil, err
			}
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
