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

const (
	listenPing     = time.Minute            // after this long without a notification, the connection is tested
	listenLimit    = 10 * time.Second       // for LISTEN, and for the answer to a test
	listenPause    = 100 * time.Millisecond // after the first failure; doubles with each further one
	maxListenPause = 30 * time.Second
)

// listener waits for NOTIFY while there are subscriptions, on one connection for all of them. The connection is not
// taken from the pool, which belongs to the application.
type listener struct {
	*sessions
	wakes *wakes.Broadcaster // the notifier's: gets what this listener hears

	mu     sync.Mutex
	users  int
	cancel context.CancelFunc
	done   chan struct{}

	listens atomic.Bool // LISTEN has succeeded, and the connection was not lost since
}

// listen subscribes to commits that enqueued messages. Commits through this Store are reported at once, others when
// their NOTIFY arrives. A notification is only a hint, and relays poll as well. The caller must call stop to end the
// subscription.
func (l *listener) listen(ctx context.Context) (sub *wakes.Subscription, stop func(context.Context)) {
	sub, unsubscribe := l.wakes.Subscribe()
	l.enter(ctx)
	var once sync.Once
	return sub, func(ctx context.Context) {
		once.Do(func() {
			unsubscribe()
			l.leave(ctx)
		})
	}
}

func (l *listener) enter(ctx context.Context) {
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
		l.run(ctx)
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

// run listens until ctx ends, and connects again after each error. Through a pooler, LISTEN would subscribe a session
// that the next client uses. So without Config.Direct, relays behind a pooler only poll.
func (l *listener) run(ctx context.Context) {
	if l.pooled.Load() && l.cfg.Direct == nil {
		l.cfg.Logger.WarnContext(ctx, "pgxstore: Config.Pool leads through a pooler, where LISTEN does not work: relays find commits of other processes "+
			"by polling; set Config.Direct to connect without the pooler")
		return
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		if l.listenOnce(ctx) {
			failures = 1
		}
		_ = await.Sleep(ctx, backoff.HalfJitter(listenPause, maxListenPause, failures)) // the loop looks at ctx
	}
}

// listenOnce listens until an error. It reports whether LISTEN had succeeded before the error.
func (l *listener) listenOnce(ctx context.Context) (listened bool) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false
	}
	defer disconnect(ctx, conn)
	l.listens.Store(true)
	defer l.listens.Store(false)
	l.wakes.Wake(nil) // for commits that happened before LISTEN
	for {
		n, err := awaitNotification(ctx, conn)
		switch {
		case err != nil:
			return true
		case n != nil:
			l.wakes.Wake(dialect.NotifiedShards(n.Payload))
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	var conn *pgx.Conn
	var err error
	if l.cfg.Direct == nil {
		conn, err = connect(ctx, l.cfg.Pool)
	} else {
		conn, err = pgx.ConnectConfig(ctx, l.cfg.Direct.Copy()) // it avoids the pooler
	}
	if err != nil {
		return nil, err
	}
	var channel string
	if err = l.resolve(ctx, conn); err == nil {
		err = conn.QueryRow(ctx, l.writes.Channel).Scan(&channel)
	}
	if err == nil {
		_, err = conn.Exec(ctx, l.writes.Hear)
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

// awaitNotification waits for a notification, for at most listenPing. After that it tests the connection, and returns
// nil.
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
