package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/publishing"
)

// link is one connection of a Publisher, with the channel that most messages take.
type link struct {
	conn     Connection
	alarm    alarm
	keepOpen func() bool // after it, the end of the Pool's life does not cut the connection

	mu        sync.Mutex
	shared    *confirmChannel
	exchanges map[string]bool // known to exist

	asking  sync.Mutex
	control ChannelDeclarer // looks up exchanges; a missing one closes it; guarded by asking
}

// connectTimeout bounds everything from dialling to confirm mode. A call stops waiting when its own context ends.
const connectTimeout = 10 * time.Second

// open repairs old if its connection works, and else connects.
func (p *Publisher) open(life context.Context, old *link) (*link, error) {
	ctx, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	if old != nil && !old.conn.IsClosed() {
		return old, p.renew(ctx, old)
	}
	conn, err := p.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if r, ok := conn.(interface{ IsRecoveryEnabled() bool }); ok && r.IsRecoveryEnabled() {
		cut(conn)
		return nil, errors.New("the connection's amqp.Config.Recovery is set: it would open channels again without the Publisher's knowledge, " +
			"their confirms begin at 1 again, and lost messages would stay unnoticed; set it to nil, the Publisher reconnects by itself")
	}
	l := &link{conn: conn, exchanges: map[string]bool{"": true}}
	l.alarm.watch(conn, p.pool.Go, nil)
	if err := p.renew(ctx, l); err != nil {
		cut(conn)
		return nil, err
	}
	l.keepOpen = context.AfterFunc(life, func() { cut(conn) })
	return l, nil
}

// renew gives l a shared channel in place of one that was closed.
func (p *Publisher) renew(ctx context.Context, l *link) error {
	defer context.AfterFunc(ctx, func() { cut(l.conn) })() // a silent server would block open for minutes
	shared, err := openConfirmChannel(l.conn, l.alarm.refuses, p.pool.Go)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = shared
	return nil
}

// channel is the shared channel.
func (l *link) channel() *confirmChannel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shared
}

// usable reports whether messages may be sent on l.
func (l *link) usable() bool { return !l.conn.IsClosed() && !l.channel().isDead() }

func (l *link) cut() {
	l.keepOpen()
	cut(l.conn)
}

// cut ends a connection without waiting for the server.
func cut(conn Connection) { _ = conn.CloseDeadline(time.Now()) }

// missing returns those exchanges of records that do not exist, with the server's error. Publishing to one of them
// would close the channel, with all messages that are not confirmed yet; so each is looked up before it is used for the
// first time on a connection.
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
	return publishing.Background(ctx, &p.pool, func() (map[string]error, error) { return l.lookUp(unsure) }, nil)
}

// lookUp asks the server which of exchanges are missing. It returns an error when the connection fails.
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

// forgetExchanges has all exchanges looked up again: one of them turned out to be gone.
func (l *link) forgetExchanges() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exchanges = map[string]bool{"": true}
}
