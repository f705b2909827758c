package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
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
	var schema string
	switch err := q.QueryRow(ctx, s.plain.Schema).Scan(&schema); {
	case errors.Is(err, pgx.ErrNoRows):
		return s.schema().Missing()
	case errors.As(err, new(*pgconn.PgError)):
		return fmt.Errorf("pgxstore: find the schema: %w", err)
	case err != nil:
		return database.Errorf("pgxstore: find the schema: %w", err)
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

// learn remembers and returns the state of an unchanged session.
func (s *Store) learn(ctx context.Context) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	if session, err = s.freshSession(ctx); err != nil {
		return "", database.Errorf("pgxstore: read the settings of a new connection: %w", err)
	}
	s.sessionState.Store(&session)
	return session, nil
}

// errDeviates says that a session was changed, so its connection must not be used.
var errDeviates = fmt.Errorf("%w: a connection's session settings are not those of a new connection", claims.ErrAgain)

// fits returns errDeviates if the session of a claim differs both from the remembered one and from that of a new connection.
func (s *Store) fits(ctx context.Context, c *claim) error {
	known := s.sessionState.Load()
	if known != nil && c.sessionState == *known {
		return s.durable(c.sessionState, c.standbys)
	}
	if pool := s.cfg.Pool.Config(); pool.PrepareConn != nil || pool.BeforeAcquire != nil { //nolint:staticcheck // deprecated, but it still runs
		return s.durable(c.sessionState, c.standbys) // the hook prepares each session
	}
	if c.sessionState != temporaries(c.sessionState, "0") { // it has temporary tables, or had some that are gone
		var found int
		if err := c.tx.QueryRow(ctx, s.plain.Temporary).Scan(&found); err != nil {
			return database.Errorf("pgxstore: look for temporary tables: %w", err)
		}
		c.sessionState = temporaries(c.sessionState, strconv.Itoa(found))
	}
	if known == nil || c.sessionState != *known {
		fresh, err := s.learn(ctx) // the role's or the database's settings may have been altered since
		if err != nil {
			return err
		}
		if c.sessionState != fresh {
			s.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection whose session was changed: its synchronous_commit, "+
				"temporary tables, role and search_path are not those of a new connection", "found", c.sessionState, "want", fresh)
			return errDeviates
		}
	}
	return s.durable(c.sessionState, c.standbys)
}

// temporaries returns the state of a session with n in the place of its temporary tables.
func temporaries(state, n string) string {
	sync, rest, _ := strings.Cut(state, " ")
	_, rest, _ = strings.Cut(rest, " ")
	return sync + " " + n + " " + rest
}

// durable rejects a session whose commits may be lost in a crash.
func (s *Store) durable(session string, standbys bool) error {
	sync, _, _ := strings.Cut(session, " ")
	if err := claims.PostgresDurable(sync, standbys); err != nil && !s.cfg.AllowAsyncCommit {
		return database.Wrap(err)
	}
	return nil
}

// mostSessions limits how many sessions of a pooler freshSession resets. Poolers prefer the session that was used last, so two are usual.
const mostSessions = 10

// freshSession returns the state of the session of a new connection. A pooler may give a new connection a session that was changed before,
// and then sets what the client has asked for at its start. So freshSession resets each session that it gets, until it gets one that it has
// reset before.
func (s *Store) freshSession(ctx context.Context) (session string, err error) {
	var reset []string
	for range mostSessions {
		var server string
		var own bool
		if server, session, own, err = s.readAndReset(ctx); err != nil || own || slices.Contains(reset, server) {
			return session, err
		}
		reset = append(reset, server)
	}
	return session, nil
}

// readAndReset connects, returns the state of the session that the connection gets, and resets that session. server is the server process
// that has the session. If own is true, that process serves only this connection.
func (s *Store) readAndReset(ctx context.Context) (server, session string, own bool, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return "", "", false, err
	}
	defer s.disconnect(ctx, conn)
	if after := s.cfg.Pool.Config().AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			return "", "", false, err
		}
	}
	results, err := conn.PgConn().Exec(ctx, s.plain.FreshSession).ReadAll()
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return "", "", false, err
	}
	row := results[0].Rows[0]
	server, session = string(row[0]), string(row[1])
	if own = server == fmt.Sprint(conn.PgConn().PID()); own {
		err = nil // the session ends here, so it need not be reset: the role may not be allowed to run a DO block
	}
	return server, session, own, err
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

// discard closes a connection that must not be reused, so that the pool drops it. If a transaction is open, discard rolls it
// back first. Behind a pooler it also resets the session, which outlives the connection.
func (s *Store) discard(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	if pg := conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() {
		undo := ""
		switch inTx := pg.TxStatus() != 'I'; {
		case s.pooled.Load() && inTx:
			undo = s.plain.ResetSession
		case s.pooled.Load():
			undo = s.plain.Reset
		case inTx:
			undo = `ROLLBACK`
		}
		if undo != "" {
			_, _ = pg.Exec(ctx, undo).ReadAll()
		}
	}
	_ = conn.Close(ctx)
}
