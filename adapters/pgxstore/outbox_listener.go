package pgxstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/wakes"
)

// listen subscribes to commits that enqueued messages. Commits through this Store are reported at once, others when their
// NOTIFY arrives. A notification is only a hint, and relays poll as well. The caller must call stop to end the subscription.
func (s *Store) listen(ctx context.Context) (sub *wakes.Subscription, stop func(context.Context)) {
	sub, unsubscribe := s.wakes.Subscribe()
	s.listener.enter(ctx, s)
	var once sync.Once
	return sub, func(ctx context.Context) {
		once.Do(func() {
			unsubscribe()
			s.listener.leave(ctx)
		})
	}
}

const (
	listenPing     = time.Minute            // after this long without a notification, the connection is tested
	listenLimit    = 10 * time.Second       // for LISTEN, and for the answer to a test
	listenPause    = 100 * time.Millisecond // after the first failure; doubles with each further one
	maxListenPause = 30 * time.Second
)

// listener waits for NOTIFY while there are subscriptions, on one connection for all of them. The connection is not taken from
// the pool, which belongs to the application.
type listener struct {
	mu     sync.Mutex
	users  int
	cancel context.CancelFunc
	done   chan struct{}

	listens atomic.Bool // LISTEN has succeeded, and the connection was not lost since
}

func (l *listener) enter(ctx context.Context, s *Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users > 1 {
		return
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	before, done := l.done, make(chan struct{})
	l.done = done
	go func() {
		defer close(done)
		if before != nil {
			<-before // leave may not have waited for it
		}
		s.listenUntilDone(ctx)
	}()
}

// leave ends one subscription. After the last one it stops the goroutine, and waits for its end until ctx ends.
func (l *listener) leave(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.cancel()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

// listenUntilDone listens until ctx ends, and connects again after each error. Through a pooler, LISTEN would subscribe a session that the
// next client uses. So without Config.Direct, relays behind a pooler only poll.
func (s *Store) listenUntilDone(ctx context.Context) {
	if s.pooled.Load() && s.cfg.Direct == nil {
		s.cfg.Logger.WarnContext(ctx, "pgxstore: Config.Pool leads through a pooler, where LISTEN does not work: relays find commits of other processes "+
			"by polling; set Config.Direct to connect without the pooler")
		return
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		if s.listenOnce(ctx) {
			failures = 1
		}
		_ = await.Sleep(ctx, backoff.HalfJitter(listenPause, maxListenPause, failures)) // the loop looks at ctx
	}
}

// listenOnce listens until an error. It reports whether LISTEN had succeeded before the error.
func (s *Store) listenOnce(ctx context.Context) (listened bool) {
	conn, err := s.connectListener(ctx)
	if err != nil {
		return false
	}
	defer disconnect(ctx, conn)
	s.listener.listens.Store(true)
	defer s.listener.listens.Store(false)
	s.wakes.Wake(nil) // for commits that happened before LISTEN
	for {
		n, err := awaitNotification(ctx, conn)
		switch {
		case err != nil:
			return true
		case n != nil:
			s.wakes.Wake(dialect.NotifiedShards(n.Payload))
		}
	}
}

func (s *Store) connectListener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	var conn *pgx.Conn
	var err error
	if s.cfg.Direct == nil {
		conn, err = connect(ctx, s.cfg.Pool)
	} else {
		conn, err = pgx.ConnectConfig(ctx, s.cfg.Direct.Copy()) // it avoids the pooler
	}
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

// awaitNotification waits for a notification, for at most listenPing. After that it tests the connection, and returns nil.
func awaitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, listenPing)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err == nil || ctx.Err() != nil || wait.Err() == nil {
		return n, err
	}
	ping, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	return nil, conn.Ping(ping)
}
