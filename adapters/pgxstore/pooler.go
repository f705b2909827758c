package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/claims"
)

// A pooler such as PgBouncer answers a client in the server's name, and in transaction mode gives it another session of the
// server's for each transaction. What the Store does is made for that: settings and advisory locks end with their
// transactions, and nothing is kept in a session. Two things are not to be had, and are found out at start instead of by
// whoever is hit: statements that are prepared in one session and executed in another, and LISTEN.

// poolerWithin bounds the questions that need two connections: a pooler may have only one for us.
const poolerWithin = 2 * time.Second

// checkPooler finds out whether a pooler stands before the database, and refuses a pool that cannot work with it.
func (s *Store) checkPooler(ctx context.Context) error {
	if s.poolerKnown.Load() {
		return nil
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return claims.DatabaseErrorf("pgxstore: connect: %w", err)
	}
	// A pooler hands out numbers of its own to cancel by, where the server says which process serves the connection.
	server, err := servedBy(ctx, conn.Conn().PgConn())
	s.pooled.Store(err == nil && server != conn.Conn().PgConn().PID())
	conn.Release()
	if err != nil {
		return claims.DatabaseErrorf("pgxstore: read the database's settings: %w", err)
	}
	if s.pooled.Load() {
		if err := s.checkPooledMode(ctx); err != nil {
			return err
		}
	}
	s.poolerKnown.Store(true)
	return nil
}

// servedBy returns the process that serves conn, now. It asks by the simple protocol, which works in every case.
func servedBy(ctx context.Context, conn *pgconn.PgConn) (pid uint32, err error) {
	return onePID(conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll())
}

func onePID(results []*pgconn.Result, err error) (uint32, error) {
	if err == nil && (len(results) != 1 || len(results[0].Rows) != 1) {
		err = fmt.Errorf("pg_backend_pid() has %d results", len(results))
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return uint32(pid), err
}

// checkPooledMode refuses a mode of pgx in which a statement is prepared by one transaction and used by another, where the
// pooler does not see to it that it is still there. What cannot be found out is let pass: then the first statement that
// meets the wrong session says so.
func (s *Store) checkPooledMode(ctx context.Context) error {
	mode := s.cfg.Pool.Config().ConnConfig.DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.poolerWithin)
	defer cancel()
	why := s.sessionsChange(ctx, mode == pgx.QueryExecModeCacheStatement)
	if why == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: Config.Pool leads through a pooler that gives each transaction another session, and its pgx mode, %q, "+
		"needs a statement of one in another (%v): add default_query_exec_mode=exec to its DSN", mode, why) // not %w: its code would make it retryable
}

// sessionsChange returns what went wrong when a connection used what it had before in another session, while a second
// connection was using the one that it had; nil when nothing did, or when its session did not change.
func (s *Store) sessionsChange(ctx context.Context, named bool) (why error) {
	one, err := s.connect(ctx)
	if err != nil {
		return nil // not found out
	}
	defer s.disconnect(ctx, one)
	two, err := s.connect(ctx)
	if err != nil {
		return nil // not found out
	}
	defer s.disconnect(ctx, two)
	ask := servedBy
	if named {
		name := fmt.Sprintf("txonce_%x", rand.Uint64())
		if _, err := one.PgConn().Prepare(ctx, name, `SELECT pg_backend_pid()`, nil); err != nil {
			return nil // not found out
		}
		ask = func(ctx context.Context, conn *pgconn.PgConn) (uint32, error) {
			r := conn.ExecPrepared(ctx, name, nil, nil, nil).Read()
			return onePID([]*pgconn.Result{r}, r.Err)
		}
	}
	before, err := ask(ctx, one.PgConn())
	if err != nil {
		return missingStatement(err)
	}
	if _, err := two.PgConn().Exec(ctx, `BEGIN`).ReadAll(); err != nil { // poolers give out the session first that was used last
		return nil // not found out
	}
	after, err := ask(ctx, one.PgConn())
	switch {
	case err != nil:
		return missingStatement(err)
	case !named && after != before:
		return fmt.Errorf("server process %d, then %d", before, after)
	}
	return nil
}

// missingStatement passes an error on that says that a prepared statement is not there.
func missingStatement(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "26000" {
		return err
	}
	return nil
}

// connect opens a connection as the pool does, that is not one of the pool's.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	pool := s.cfg.Pool.Config()
	if pool.BeforeConnect != nil { // it may know the password of the hour
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, pool.ConnConfig)
}

// connectDirect opens a connection without a pooler between, where the Config says how.
func (s *Store) connectDirect(ctx context.Context) (*pgx.Conn, error) {
	if s.cfg.Direct == nil {
		return s.connect(ctx)
	}
	return pgx.ConnectConfig(ctx, s.cfg.Direct.Copy())
}

func (s *Store) disconnect(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
