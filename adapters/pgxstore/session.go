package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// Changes that a handler makes to its session would remain on the pooled connection and affect later messages: a role that may
// not write, another schema, commits that a crash may undo. Three measures prevent this. Every statement of the Store names its
// schema. The Store closes a connection after a statement that, by its text, changed the session. And the claim's statement tells
// the state of its session: if that is not as it must be, the transaction is not used. The Store never changes a session itself.

// sessionState is what the Store compares of a session: it decides which tables a handler's statements mean, and whether a crash may
// undo COMMIT.
type sessionState struct {
	sync  string // synchronous_commit
	temps string // the schema of temporary tables; after temporaries was called: their number and a hash of their names. 0: none, in both
	names string // current_user and search_path
}

// noTemporaries are the temps of a session without temporary tables.
const noTemporaries = "0"

// stateOf reads the text that dialect.Postgres calls the session's state.
func stateOf(text string) (st sessionState) {
	st.sync, text, _ = strings.Cut(text, " ")
	st.temps, st.names, _ = strings.Cut(text, " ")
	return st
}

func (st sessionState) String() string { return st.sync + " " + st.temps + " " + st.names }

// seen is what the Store knows about the session of a connection. The connection has it in its CustomData.
type seen struct {
	met  sessionState // what the latest claim found: as long as claims find the same, nobody asks the server
	want sessionState
}

const seenKey = "github.com/txonce/txonce/adapters/pgxstore"

// hooks says which hooks of the pool may change sessions.
type hooks struct {
	connect bool // AfterConnect runs once per connection
	acquire bool // PrepareConn or BeforeAcquire runs each time that a connection is acquired
}

func hooksOf(pool *pgxpool.Config) hooks {
	return hooks{pool.AfterConnect != nil, pool.PrepareConn != nil || pool.BeforeAcquire != nil} //nolint:staticcheck // deprecated, but it still runs
}

// fits returns nil if the session of c is as it must be, and completes c.session. After an error, the connection must be discarded.
//
// A session must have the settings that it began with, and no temporary table. If the pool has hooks, it must be as the first claim
// on its connection found it. A hook that runs for each use decides about the role and the search_path. Behind a pooler hooks do
// not count: what they set may be in any session.
func (s *Store) fits(ctx context.Context, c *claim) error {
	if c.tx == nil { // all keys had rows, and the claim's transaction has ended; guard.open checks the one that the handler may begin
		return nil
	}
	data := c.conn.PgConn().CustomData()
	known, again := data[seenKey].(seen)
	st, met := &c.session, c.session
	if s.hooks.acquire && !s.pooled.Load() {
		met.names = known.met.names // the hook decides
	}
	same := again && met.sync == known.met.sync && met.names == known.met.names
	if same && st.temps == noTemporaries {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	begun, err := s.look(ctx, c, !same)
	if err != nil {
		return database.Errorf("pgxstore: look at the session: %w", err)
	}
	now, want := *st, known.want
	hooked := !s.pooled.Load() && (s.hooks.connect || s.hooks.acquire || c.conn.Config().AfterConnect != nil)
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
		return s.deviates(ctx, c, want)
	}
	data[seenKey] = seen{met, want}
	return nil
}

// ofHook returns what counts where a hook prepares each use of a connection: the hook may use another tenant's role, search_path and
// names of temporary tables.
func (st sessionState) ofHook() sessionState {
	n, _, _ := strings.Cut(st.temps, "-")
	return sessionState{sync: st.sync, temps: n}
}

// look counts the temporary tables of the session. If all is true, it also finds out how the session was when it began, and whether
// there is a pooler.
func (s *Store) look(ctx context.Context, c *claim, all bool) (begun *sessionState, err error) {
	if !all {
		return nil, c.tx.QueryRow(ctx, s.plain.Temporary).Scan(&c.session.temps)
	}
	results, err := c.conn.PgConn().Exec(ctx, s.plain.SessionBegan).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if len(r.Rows) == 1 {
			row := r.Rows[0]
			began := stateOf(string(row[0]))
			c.session.temps = string(row[1])
			s.pooled.Store(string(row[2]) != fmt.Sprint(c.conn.PgConn().PID()))
			return &began, nil
		}
	}
	return nil, errors.New("the server did not answer")
}

// deviates returns the error for a session that was changed. The claim is repeated on another one.
func (s *Store) deviates(ctx context.Context, c *claim, want sessionState) error {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection whose session was changed: its synchronous_commit, "+
		"temporary tables, role and search_path are not those that it began with", "found", c.session, "want", want)
	fix := "use SET LOCAL, or the hooks of the pool"
	if s.pooled.Load() {
		fix = "a client of the pooler, a hook of the pool or the pooler's connect_query has changed it: use ALTER ROLE … SET, and RECONNECT on the pooler's console"
	}
	return fmt.Errorf("%w: a session's synchronous_commit, temporary tables, role and search_path are %q, want %q (%s)", claims.ErrAgain, c.session, want, fix)
}

// resolve finds the schema that unqualified table names refer to, once, and puts it into all statements. It uses q, because a
// transaction that waited here for a second connection of its pool might wait forever.
func (s *Store) resolve(ctx context.Context, q querier) error {
	if s.resolved.Load() {
		return nil
	}
	var session, fresh string
	switch err := q.QueryRow(ctx, s.plain.Schema).Scan(&session, nil, &fresh, nil, nil, nil); {
	case errors.As(err, new(*pgconn.PgError)):
		return fmt.Errorf("pgxstore: find the schema: %w", err)
	case err != nil:
		return database.Errorf("pgxstore: find the schema: %w", err)
	}
	if q == querier(s.cfg.Pool) && fresh != "" && s.hooks == (hooks{}) { // the application, or another client of a pooler, has changed the session
		session = fresh
	}
	schema, err := database.ChooseSchema(session, fresh)
	switch {
	case err != nil:
		return err
	case schema == "":
		return s.schema().Missing()
	}
	s.resolving.Lock()
	defer s.resolving.Unlock()
	if !s.resolved.Load() {
		s.useSchema(schema)
	}
	return nil
}

// useSchema sets the Store's statements. Only New and resolve call it, before any statement is read.
func (s *Store) useSchema(schema string) {
	s.sql = dialect.NewPostgres(schema)
	s.writes = dialect.NewPostgresOutboxWrite(schema)
	s.outbox = dialect.NewPostgresOutbox(schema)
	s.operations = dialect.NewPostgresOperator(schema)
	s.resolved.Store(true)
}

// durable rejects a session whose commits may be lost in a crash.
func (s *Store) durable(session sessionState, standbys bool) error {
	if err := claims.PostgresDurable(session.sync, standbys); err != nil && !s.cfg.AllowAsyncCommit {
		return database.Wrap(err)
	}
	return nil
}

// blamesSession reports whether a claim failed because of its session, so that another connection may succeed: the role has no
// permission, transactions are read-only, or a statement was prepared before a migration or is not prepared any more.
func blamesSession(err error) bool {
	switch sqlState(err) {
	case "42501", "25006", "26000":
		return true
	}
	return isStalePlan(err)
}

// release gives conn back to its pool. If err may be the fault of the session, release closes conn, so that the pool makes another one:
// after a failover that may lead to the new primary.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn, err error) {
	if blamesSession(err) {
		s.discard(ctx, conn.Conn())
	}
	conn.Release()
}

// discard closes a connection that must not be reused, so that the pool drops it. PostgreSQL rolls its transaction back. A pooler whose
// client leaves within a transaction closes the server's session too.
func (s *Store) discard(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	if pg := conn.PgConn(); s.pooled.Load() && !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'I' {
		_, _ = pg.Exec(ctx, `BEGIN`).ReadAll() // the pooler probably takes the session of the latest statement
	}
	_ = conn.Close(ctx)
}
