package pgxstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// relayConns are connections that only the sessions of relays use, so that the settings of their statements can stay on the
// connection. They are not taken from Config.Pool, because the application's statements must not meet these settings. The pool
// exists while there are sessions.
type relayConns struct {
	mu    sync.Mutex
	users int
	pool  *pgxpool.Pool
}

// relayConnsMost is how many connections the sessions of a Store use at most: one to lease and three to settle, say.
const relayConnsMost = 4

// enter returns the pool for one more session. leave ends its use. nil: Config.Pool leads through a pooler, where a setting would
// stay on a connection that other programs use too; then each transaction makes its settings.
func (r *relayConns) enter(ctx context.Context, s *Store) (pool *pgxpool.Pool, leave func(), err error) {
	if s.pooled.Load() {
		return nil, func() {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		if r.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), s.relayPoolConfig()); err != nil { // it does not connect yet
			return nil, nil, database.Errorf("pgxstore: outbox: make a pool for the relay: %w", err)
		}
	}
	r.users++
	return r.pool, sync.OnceFunc(r.leave), nil
}

// leave closes the pool after the last session has left.
func (r *relayConns) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		r.pool.Close()
		r.pool = nil
	}
}

// relayPoolConfig returns the configuration of Config.Pool without its hooks for single uses of a connection: these could reset the
// settings. A connection that was lost is noticed by its next statement, which the relay repeats.
func (s *Store) relayPoolConfig() *pgxpool.Config {
	cfg := s.cfg.Pool.Config()
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
		_, err := conn.Exec(ctx, s.outbox.OwnSettings, pgx.QueryExecModeExec)
		return err
	}
	return cfg
}
