package pgxstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// relayConns are connections that only the sessions of relays use, so that the settings of their statements can stay on
// the connection. They are not taken from Config.Pool, because the application's statements must not meet these
// settings. The pool exists while there are sessions.
type relayConns struct {
	*sessions

	mu    sync.Mutex
	users int
	conns *relayPool
}

// relayPool is used by all sessions of a Store. Calls that lease and settle messages use relayWorkMost of its
// connections at once. One more is for calls that hold shards: if all connections waited for locks, or for a network
// that lost them, Renew would come too late, and another relay would publish the messages in flight once more.
type relayPool struct {
	pool    *pgxpool.Pool
	working chan struct{} // has an element for each call that leases or settles
}

const (
	relayWorkMost  = 4 // for example one to lease and three to settle
	relayConnsMost = relayWorkMost + 1
)

// enter returns the pool for one more session. leave ends its use. nil: Config.Pool leads through a pooler, where a
// setting would stay on a connection that other programs use too; then each transaction makes its settings.
func (r *relayConns) enter(ctx context.Context) (conns *relayPool, leave func(context.Context), err error) {
	if r.pooled.Load() {
		return nil, func(context.Context) {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), r.config()) // it does not connect yet
		if err != nil {
			return nil, nil, database.Errorf("pgxstore: outbox: make a pool for the relay: %w", err)
		}
		r.conns = &relayPool{pool, make(chan struct{}, relayWorkMost)}
	}
	r.users++
	var once sync.Once
	return r.conns, func(ctx context.Context) { once.Do(func() { r.leave(ctx) }) }, nil
}

// leave closes the pool after the last session has left. It waits for that only until ctx ends, because the pool waits
// for calls that still use a connection, and for a server that does not answer.
func (r *relayConns) leave(ctx context.Context) {
	r.mu.Lock()
	r.users--
	last, pool := r.users == 0, r.conns.pool
	if last {
		r.conns = nil
	}
	r.mu.Unlock()
	if !last {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// work waits until the caller may use a connection to lease or settle messages. done ends that.
func (p *relayPool) work(ctx context.Context) (done func(), err error) {
	select {
	case p.working <- struct{}{}:
		return func() { <-p.working }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// config returns the configuration of Config.Pool without its hooks for single uses of a connection: these could reset
// the settings. A connection that was lost is noticed by its next statement, which the relay repeats.
func (r *relayConns) config() *pgxpool.Config {
	cfg := r.cfg.Pool.Config()
	cfg.BeforeAcquire, cfg.PrepareConn, cfg.AfterRelease = nil, nil, nil //nolint:staticcheck // BeforeAcquire is deprecated, and some pools have one
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = relayConnsMost, 0, 0
	cfg.MaxConnIdleTime = time.Minute
	afterConnect := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if afterConnect != nil {
			if err := afterConnect(ctx, conn); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, r.outbox.OwnSettings, pgx.QueryExecModeExec)
		return err
	}
	return cfg
}
