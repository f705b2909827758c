package pgxstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A pool may have hooks that change its sessions: AfterConnect of pgconn and of pgxpool, which run once per connection, and PrepareConn or
// BeforeAcquire, which run each time that a connection is acquired. The Store expects sessions as they are after these hooks.

// hookEffect is what the pool's hook for a connection that is acquired changes in its session.
type hookEffect struct{ settings, temporaries bool }

func (s *Store) noteHook(does hookEffect) {
	if does.settings {
		s.hookSets.Store(true)
	}
	if does.temporaries {
		s.hookMakes.Store(true)
	}
}

// runHooks runs bare, and the hooks of the pool for a new connection and for one that is acquired. It returns what the latter has done.
func (s *Store) runHooks(ctx context.Context, conn *pgx.Conn, bare pgconn.AfterConnectFunc) (does hookEffect, err error) {
	pool := s.cfg.Pool.Config()
	if bare != nil {
		err = bare(ctx, conn.PgConn())
	}
	if err == nil && pool.AfterConnect != nil {
		err = pool.AfterConnect(ctx, conn)
	}
	if err != nil || !s.hooked {
		return does, err
	}
	return s.prepareConn(ctx, conn)
}

// prepareConn runs the pool's hook for a connection that is acquired.
func (s *Store) prepareConn(ctx context.Context, conn *pgx.Conn) (does hookEffect, err error) {
	pool := s.cfg.Pool.Config()
	before, server, err := s.session(ctx, conn.PgConn(), s.plain.FreshSession)
	if err != nil {
		return does, err
	}
	if hook := pool.PrepareConn; hook != nil {
		_, err = hook(ctx, conn)
	} else {
		pool.BeforeAcquire(ctx, conn) //nolint:staticcheck // deprecated, but it still runs
	}
	if err != nil {
		return does, err
	}
	after, now, err := s.session(ctx, conn.PgConn(), s.plain.FreshSession)
	if err == nil && server == now { // otherwise a pooler has given the connection another session
		does = hookEffect{temporaries(after, "") != temporaries(before, ""), temporariesOf(after) != temporariesOf(before)}
	}
	return does, err
}

// alike reports whether a session has the state that is expected. A hook of the pool may set the session's settings each time that a connection
// is acquired: then the hook decides about them. If the hook makes temporary tables, only their number must be the same.
func (s *Store) alike(state, want string) bool {
	if state == want {
		return true
	}
	settings, tables := temporaries(state, "") == temporaries(want, ""), temporariesOf(state) == temporariesOf(want)
	if s.hookMakes.Load() {
		has, _, _ := strings.Cut(temporariesOf(state), "-")
		had, _, _ := strings.Cut(temporariesOf(want), "-")
		tables = has == had
	}
	return tables && (settings || s.hookSets.Load())
}
