package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// sessions are the connections of Config.Pool, with what the Store knows about their sessions. The parts of a Store
// that use the database embed it.
//
// Changes that a handler makes to its session would remain on the pooled connection and affect later messages: a role
// that may not write, another schema, commits that a crash may undo. Three measures prevent this. Every statement of
// the Store names its schema. The Store closes a connection after a statement that, by its text, changed the session.
// And the claim's statement tells the state of its session: if that is not as it must be, the transaction is not used.
// The Store never changes a session itself.
type sessions struct {
	*schema
	pooler
	cfg       Config
	hooks     hooks
	describes bool      // pgx describes the statements of a batch before it sends them
	warned    sync.Once // limits the warning about handlers that change their session
}

func newSessions(cfg Config) *sessions {
	pool := cfg.Pool.Config()
	h := hooksOf(pool)
	s := &sessions{
		schema: newSchema(cfg.Pool, cfg.Schema, h != hooks{}), pooler: pooler{within: poolerWithin},
		cfg: cfg, hooks: h,
	}
	switch pool.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
		s.describes = true
	default:
	}
	return s
}

// PoolUse implements driver.PoolReporter.
func (s *sessions) PoolUse() (inUse, most int) {
	stat := s.cfg.Pool.Stat()
	return int(stat.AcquiredConns()), int(stat.MaxConns())
}

// checkPooler finds out whether the pool connects through a pooler, and rejects a pool whose mode does not work with
// it.
func (s *sessions) checkPooler(ctx context.Context) error { return s.pooler.check(ctx, s.cfg.Pool) }

// compare returns nil if the session of conn is as it must be. st is the state that the claim found; compare completes
// it. After an error, the connection must be discarded.
//
// A session must have the settings that it began with, and no temporary table. If the pool has hooks, it must be as the
// first claim on its connection found it. A hook that runs for each use decides about the role and the search_path.
// Behind a pooler hooks do not count: what they set may be in any session.
func (s *sessions) compare(ctx context.Context, conn *pgx.Conn, st *sessionState) error {
	data := conn.PgConn().CustomData()
	known, again := data[seenKey].(seen)
	met := *st
	if s.hooks.acquire && !s.pooled.Load() {
		met.names = known.met.names // the hook decides
	}
	same := again && met.sync == known.met.sync && met.names == known.met.names
	if same && st.temps == noTemporaries {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	begun, err := s.look(ctx, conn, st, !same)
	if err != nil {
		return database.Errorf("pgxstore: look at the session: %w", err)
	}
	now, want := *st, known.want
	hooked := !s.pooled.Load() && (s.hooks.connect || s.hooks.acquire || conn.Config().AfterConnect != nil)
	switch {
	case hooked && !again:
		want = now
	case !hooked && begun != nil:
		want = *begun
	}
	if hooked && s.hooks.acquire {
		now, want = now.ofHook(), want.ofHook()
	}
	if now != want {
		return s.deviates(ctx, *st, want)
	}
	data[seenKey] = seen{met, want}
	return nil
}

// look counts the temporary tables of the session. If all is true, it also finds out how the session was when it began,
// and whether there is a pooler.
func (s *sessions) look(ctx context.Context, conn *pgx.Conn, st *sessionState,
	all bool,
) (begun *sessionState, err error) {
	if !all {
		return nil, conn.QueryRow(ctx, s.plain.Temporary).Scan(&st.temps)
	}
	results, err := conn.PgConn().Exec(ctx, s.plain.SessionBegan).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if len(r.Rows) == 1 {
			row := r.Rows[0]
			began := stateOf(string(row[0]))
			st.temps = string(row[1])
			s.pooled.Store(string(row[2]) != fmt.Sprint(conn.PgConn().PID()))
			return &began, nil
		}
	}
	return nil, errors.New("the server did not answer")
}

// deviates returns the error for a session that was changed. The claim is repeated on another one.
func (s *sessions) deviates(ctx context.Context, found, want sessionState) error {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection whose session was changed: its synchronous_commit, "+
		"temporary tables, role and search_path are not those that it began with", "found", found, "want", want)
	fix := "use SET LOCAL, or the hooks of the pool"
	if s.pooled.Load() {
		fix = "a client of the pooler, a hook of the pool or the pooler's connect_query has changed it: use ALTER ROLE … SET, and RECONNECT on the pooler's console"
	}
	return fmt.Errorf("%w: a session's synchronous_commit, temporary tables, role and search_path are %q, want %q (%s)",
		claims.ErrAgain, found, want, fix)
}

// durable rejects a session whose commits may be lost in a crash.
func (s *sessions) durable(session sessionState, standbys bool) error {
	if err := claims.PostgresDurable(session.sync, standbys); err != nil && !s.cfg.AllowAsyncCommit {
		return database.Wrap(err)
	}
	return nil
}

// pingWait bounds the check whether the database still answers.
const pingWait = time.Second

// waited explains why a claim got no answer in time: another transaction holds its key, or the database is unreachable.
func (s *sessions) waited(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	ping := s.cfg.Pool.Ping(ctx)
	if stat := s.cfg.Pool.Stat(); ping != nil && stat.AcquiredConns() < stat.MaxConns() {
		return database.Errorf("pgxstore: claim: %w (and the database does not answer: %w)", err, ping)
	}
	return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight, s.cfg.ClaimTimeout)
}

// release gives conn back to its pool. If err may be the fault of the session, release closes conn, so that the pool
// makes another one: after a failover that may lead to the new primary.
func (s *sessions) release(ctx context.Context, conn *pgxpool.Conn, err error) {
	if blamesSession(err) {
		s.discard(ctx, conn.Conn())
	}
	conn.Release()
}

// discard closes a connection that must not be reused, so that the pool drops it. PostgreSQL rolls its transaction
// back. A pooler whose client leaves within a transaction closes the server's session too.
func (s *sessions) discard(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	if pg := conn.PgConn(); s.pooled.Load() && !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'I' {
		_, _ = pg.Exec(ctx, `BEGIN`).ReadAll() // the pooler probably takes the session of the latest statement
	}
	_ = conn.Close(ctx)
}

// endTimeout bounds COMMIT and ROLLBACK. They ignore the end of ctx, because a COMMIT without an answer has an unknown
// outcome.
const endTimeout = 10 * time.Second

func rollback(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return // it was committed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	defer cutInUse(tx.Conn())
	_ = tx.Rollback(ctx) // if this fails, pgx closes the connection, which also rolls back
}

// cutInUse is deferred. pgx panics when a goroutine of the handler still uses the connection, which the handler may
// have got from Conn.
func cutInUse(conn *pgx.Conn) {
	if recover() != nil {
		_ = conn.PgConn().Conn().Close()
	}
}
