package pgxstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pooler such as PgBouncer answers a client in the server's name. In transaction mode it may use a different session
// of the server for each transaction. The Store's statements work there: settings and advisory locks end with their
// transactions, and no state is kept in a session. Two features do not work: statements that are prepared in one
// session and executed in another, and LISTEN. The checks below find this out at start, before a message fails.

// poolerWithin limits the checks that need two connections, because a pooler may allow only one.
const poolerWithin = 2 * time.Second

// pooler is what is known about a pooler between the pool and the server.
type pooler struct {
	within time.Duration // limit for checkMode; tests on a busy machine extend it
	known  atomic.Bool   // check has found out whether there is one
	pooled atomic.Bool   // there is one; see also sessions.look
}

// check finds out whether pool connects through a pooler, and rejects a pool whose mode does not work with it.
func (p *pooler) check(ctx context.Context, pool *pgxpool.Pool) error {
	if p.known.Load() {
		return nil
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: connect: %w", err)
	}
	// A pooler assigns its own process numbers for cancellation, which differ from the server's pg_backend_pid().
	server, err := servedBy(ctx, conn.Conn().PgConn())
	p.pooled.Store(err == nil && server != conn.Conn().PgConn().PID())
	conn.Release()
	if err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	if p.pooled.Load() {
		if err := p.checkMode(ctx, pool); err != nil {
			return err
		}
	}
	p.known.Store(true)
	return nil
}

// servedBy returns the server process that serves conn at the moment. It uses the simple protocol, which always works.
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

// checkMode rejects a mode of pgx that prepares a statement in one transaction and uses it in another, unless the
// pooler keeps prepared statements available. If this cannot be found out, it accepts the mode. Then the first
// statement that meets another session fails with a clear error.
func (p *pooler) checkMode(ctx context.Context, pool *pgxpool.Pool) error {
	mode := pool.Config().ConnConfig.DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	why := sessionsChange(ctx, pool, mode == pgx.QueryExecModeCacheStatement)
	if why == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: Config.Pool leads through a pooler that gives each transaction another session, and its pgx mode, %q, "+
		// not %w: the code of why would make this error Retryable
		"needs prepared statements of one session in another (%v): add default_query_exec_mode=exec to its DSN",
		mode, why)
}

// sessionsChange opens two connections. It uses the first, occupies that one's session by the second, and then uses the
// first again in the way of the pool's mode. It returns what went wrong, or nil if nothing did or the session stayed
// the same.
func sessionsChange(ctx context.Context, pool *pgxpool.Pool, named bool) (why error) {
	one, err := connect(ctx, pool)
	if err != nil {
		return nil // unknown
	}
	defer disconnect(ctx, one)
	two, err := connect(ctx, pool)
	if err != nil {
		return nil // unknown
	}
	defer disconnect(ctx, two)
	ask := servedBy
	if named {
		name := fmt.Sprintf("txonce_%x", rand.Uint64())
		if _, err := one.PgConn().Prepare(ctx, name, `SELECT pg_backend_pid()`, nil); err != nil {
			return nil // unknown
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
	if _, err := two.PgConn().Exec(ctx, `BEGIN`).ReadAll(); err != nil {
		// poolers prefer the session that was used last
		return nil // unknown
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

// missingStatement returns err if it says that a prepared statement does not exist, and nil otherwise.
func missingStatement(err error) error {
	if sqlState(err) == "26000" {
		return err
	}
	return nil
}

// connect opens a connection with the configuration of pool, but outside of it.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	cfg := pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil { // the hook may set a short-lived password
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, cfg.ConnConfig)
}

func disconnect(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
