package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
// schema. The Store closes a connection after a statement that, by its text, changed the session. And each transaction begins with the
// state of its session: if that differs from the state of a new session, the transaction is not used.

// resolve finds the schema that unqualified table names refer to, once, and puts it into all statements. It uses q, because a
// transaction that waited here for a second connection of its pool might wait forever.
func (s *Store) resolve(ctx context.Context, q querier) error {
	if s.resolved.Load() {
		return nil
	}
	var session, fresh, path, freshPath string
	switch err := q.QueryRow(ctx, s.plain.Schema).Scan(&session, nil, &fresh, nil, &path, &freshPath); {
	case errors.As(err, new(*pgconn.PgError)):
		return fmt.Errorf("pgxstore: find the schema: %w", err)
	case err != nil:
		return database.Errorf("pgxstore: find the schema: %w", err)
	}
	if known := s.sessionState.Load(); known != nil { // a hook may have set the search_path, or another client of a pooler
		switch searchPathOf(*known) {
		case path:
			fresh = session
		case freshPath:
			session = fresh
		}
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

// errDeviates says that a session was changed, so its connection must not be used. errRelearned says that the settings of new connections
// have changed, and that this session already has the new ones.
var (
	errDeviates  = fmt.Errorf("%w: a connection's session settings are not those of a new connection", claims.ErrAgain)
	errRelearned = fmt.Errorf("%w: the session settings of new connections have changed", claims.ErrAgain)
)

// fits returns nil if the session of c is as a handler expects it. After an error, c's transaction has ended. After errRelearned, it must be
// repeated. After any other error, the connection must be discarded.
func (s *Store) fits(ctx context.Context, c *claim) error {
	known := s.sessionState.Load()
	if known != nil && c.sessionState == *known {
		return nil
	}
	switch {
	case c.tx == nil && known == nil:
		return nil
	case c.tx == nil: // all keys had rows, and the claim's transaction has ended; guard.open checks the one that the handler may begin
		c.sessionState = temporaries(c.sessionState, temporariesOf(*known))
	case hasTemporaries(c.sessionState): // or it had some that are gone
		var found string
		if err := c.tx.QueryRow(ctx, s.plain.Temporary).Scan(&found); err != nil {
			return database.Errorf("pgxstore: look for temporary tables: %w", err)
		}
		c.sessionState = temporaries(c.sessionState, found)
	}
	if known != nil && s.alike(c.sessionState, *known) {
		return nil
	}
	if c.tx != nil { // otherwise learn could wait for a session of a pooler while this transaction occupies one
		s.undo(ctx, c.conn)
	}
	if err := s.learn(ctx, nil); err != nil { // the role's or the database's settings may have been altered since
		return err
	}
	fresh := *s.sessionState.Load()
	switch {
	case !s.alike(c.sessionState, fresh):
		s.deviates(ctx, c, fresh)
		return errDeviates
	case s.pooled.Load(): // the reset may have undone what AfterConnect had set, so the connection is closed although it fits
		return fmt.Errorf("%w: a session of the pooler was reset", claims.ErrAgain)
	}
	return errRelearned
}

// deviates logs why the connection of c is closed.
func (s *Store) deviates(ctx context.Context, c *claim, want string) {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection whose session was changed: its synchronous_commit, "+
		"temporary tables, role and search_path are not those of a new connection", "found", c.sessionState, "want", want)
}

// searchPathOf returns the search_path in the state of a session.
func searchPathOf(state string) string {
	if parts := strings.SplitN(state, " ", 4); len(parts) == 4 {
		return parts[3]
	}
	return ""
}

// temporaries returns the state of a session with n in the place of its temporary tables.
func temporaries(state, n string) string {
	sync, rest, _ := strings.Cut(state, " ")
	_, rest, _ = strings.Cut(rest, " ")
	return sync + " " + n + " " + rest
}

// temporariesOf returns what the state of a session says about its temporary tables, or their schema: see dialect.Postgres.
func temporariesOf(state string) string {
	_, rest, _ := strings.Cut(state, " ")
	n, _, _ := strings.Cut(rest, " ")
	return n
}

// hasTemporaries reports whether a session with this state has, or may have, temporary tables.
func hasTemporaries(state string) bool { return temporariesOf(state) != "0" }

// durable rejects a session whose commits may be lost in a crash.
func (s *Store) durable(session string, standbys bool) error {
	sync, _, _ := strings.Cut(session, " ")
	if err := claims.PostgresDurable(sync, standbys); err != nil && !s.cfg.AllowAsyncCommit {
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

// settings records what a statement changes in the session.
func (g *guard) settings(c dialect.Control, sql string, args []any) {
	if !c.Sets && !c.Session && !c.Temporary {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = g.changed || c.Session
	g.temporary = g.temporary || c.Temporary
	g.resync = g.resync || c.Sets && namesSync(sql, args)
}

// namesSync reports whether a statement that changes settings may change synchronous_commit. The name may be in an argument of any type,
// such as pgx.NamedArgs. Of a long argument, such as a payload, only the beginning is searched.
func namesSync(sql string, args []any) bool {
	names := func(text string) bool { return strings.Contains(strings.ToLower(text), "synchronous_commit") }
	return names(sql) || slices.ContainsFunc(args, func(arg any) bool {
		return names(fmt.Sprintf("%.1000s", reflect.Indirect(reflect.ValueOf(arg))))
	})
}

// resyncs restores the synchronous_commit that the claim found, if the handler may have changed it.
func (g *guard) resyncs(ctx context.Context) error {
	sync, _, known := strings.Cut(g.sessionState, " ")
	if !g.resync || !known || g.store.cfg.AllowAsyncCommit {
		return nil
	}
	if _, err := g.tx.Exec(ctx, g.store.sql.Sync, sync); err != nil {
		return database.Errorf("pgxstore: set synchronous_commit back: %w", err)
	}
	return nil
}

// release gives conn back to its pool. If err may be the fault of the session, release closes conn, so that the pool makes another one:
// after a failover that may lead to the new primary.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn, err error) {
	if blamesSession(err) {
		s.discard(ctx, conn.Conn())
	}
	conn.Release()
}

// discard closes a connection that must not be reused, so that the pool drops it, after undo.
func (s *Store) discard(ctx context.Context, conn *pgx.Conn) {
	s.undo(ctx, conn)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	_ = conn.Close(ctx)
}

// undo rolls back the transaction that is open. Behind a pooler it also resets the session, which outlives the connection: that of the open
// transaction, or any, if none is open. If it fails, the connection may still have its transaction.
func (s *Store) undo(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	if pg := conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() {
		inTx := pg.TxStatus() != 'I'
		if s.pooled.Load() {
			begin := `BEGIN`
			if inTx {
				begin = `ROLLBACK AND CHAIN`
			}
			if _, err := pg.Exec(ctx, begin).ReadAll(); err == nil && s.reset(ctx, pg) == nil {
				_, _ = pg.Exec(ctx, `COMMIT`).ReadAll()
			}
		} else if inTx {
			_, _ = pg.Exec(ctx, `ROLLBACK`).ReadAll()
		}
	}
}
