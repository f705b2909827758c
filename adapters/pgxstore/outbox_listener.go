package pgxstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// listen subscribes to commits that enqueued something: at once to those of this Store, and as soon as NOTIFY arrives to
// others. It is a hint; polling goes on beneath. stop ends it, and must be called.
func (s *Store) listen(ctx context.Context) (sub *subscription, stop func()) {
	sub, unsubscribe := s.wakes.subscribe()
	s.listener.enter(ctx, s)
	return sub, sync.OnceFunc(func() {
		unsubscribe()
		s.listener.leave()
	})
}

const (
	listenPing    = time.Minute // how often a silent connection is asked whether it is still one
	listenLimit   = 10 * time.Second
	listenBackoff = 100 * time.Millisecond // after the first failure, doubled by each further one
	listenRest    = 30 * time.Second       // the most
)

// listener waits for NOTIFY while somebody is interested, on one connection for all of them. It is not one of the pool's,
// which are the application's.
type listener struct {
	mu     sync.Mutex
	users  int
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *listener) enter(ctx context.Context, s *Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users > 1 {
		return
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	l.done = done
	go func() {
		defer close(done)
		s.listenUntilDone(ctx)
	}()
}

// leave waits for the goroutine where nobody is interested any more.
func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.cancel()
	<-l.done
}

// listenUntilDone connects again and again. Through a pooler LISTEN would reach a session that is another client's next: there
// relays poll.
func (s *Store) listenUntilDone(ctx context.Context) {
	if s.pooled.Load() && s.cfg.Direct == nil {
		s.cfg.Logger.WarnContext(ctx, "pgxstore: Config.Pool leads through a pooler, where LISTEN does not work: commits of other processes "+
			"are found by polling; set Config.Direct to how the database is reached without it")
		return
	}
	rest := listenBackoff
	for ctx.Err() == nil {
		if s.listenOnce(ctx) {
			rest = listenBackoff
		}
		timer := time.NewTimer(rest/2 + rand.N(rest/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		rest = min(2*rest, listenRest)
	}
}

// listenOnce reports whether it had a connection that listened, before it failed.
func (s *Store) listenOnce(ctx context.Context) (listened bool) {
	conn, err := s.connectListener(ctx)
	if err != nil {
		return false
	}
	defer s.disconnect(ctx, conn)
	for {
		s.wakes.wake(nil) // the first time for what nobody listened to
		for {
			woken, err := awaitNotification(ctx, conn)
			if err != nil {
				return true
			}
			if woken {
				break
			}
		}
	}
}

func (s *Store) connectListener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	conn, err := s.connectDirect(ctx)
	if err != nil {
		return nil, err
	}
	var channel string
	if err = s.resolve(ctx, conn); err == nil {
		err = conn.QueryRow(ctx, s.writes.Channel).Scan(&channel)
	}
	if err == nil {
		_, err = conn.Exec(ctx, s.writes.Hear)
	}
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize())
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// awaitNotification waits for one, at most for as long as silence proves nothing.
func awaitNotification(ctx context.Context, conn *pgx.Conn) (woken bool, err error) {
	wait, cancel := context.WithTimeout(ctx, listenPing)
	defer cancel()
	_, err = conn.WaitForNotification(wait)
	if err == nil {
		return true, nil
	}
	if ctx.Err() != nil || wait.Err() == nil {
		return false, err
	}
	ping, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	return false, conn.Ping(ping)
}
