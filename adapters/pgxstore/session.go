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

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// Changes that a handler makes to its session would remain on the pooled connection and affect later messages: a role that may
// not write, another schema, commits that a crash may undo. Three measures prevent this. Every statement of the Store names its
// schema. The Store closes a connection after a statement that, by its text, changed the session. And each claim returns the
// state of its session: if it differs from the state that Register found, the claim is not used.

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

// learn reads the state of an unchanged session.
func (s *Store) learn(ctx context.Context) error {
	var session string
	if err := s.cfg.Pool.QueryRow(ctx, s.plain.Session).Scan(&session); err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	s.sessionState.Store(&session)
	return nil
}

// errDeviates says that a session was changed, so its connection must not be used.
var errDeviates = fmt.Errorf("%w: a connection's session settings are not those of a new connection", claims.ErrAgain)

// fits returns errDeviates if the session of a claim differs both from the remembered one and from that of a new connection.
func (s *Store) fits(ctx context.Context, session string, standbys bool) error {
	known := s.sessionState.Load()
	if session == "" || known != nil && session == *known {
		return s.durable(session, standbys)
	}
	if pool := s.cfg.Pool.Config(); pool.PrepareConn != nil || pool.BeforeAcquire != nil { //nolint:staticcheck // deprecated, but it still runs
		return s.durable(session, standbys) // the hook prepares each session
	}
	fresh, err := s.freshSession(ctx)
	if err != nil {
		return err
	}
	if session != fresh {
		s.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection whose session was changed: "+
			"its synchronous_commit, role and search_path are not those of a new connection", "found", session, "want", fresh)
		return errDeviates
	}
	s.sessionState.Store(&fresh) // the role's or the database's settings were altered since
	return s.durable(session, standbys)
}

// durable rejects a session whose commits may be lost in a crash.
func (s *Store) durable(session string, standbys bool) error {
	sync, _, _ := strings.Cut(session, " ")
	if err := claims.PostgresDurable(sync, standbys); err != nil && !s.cfg.AllowAsyncCommit {
		return database.Wrap(err)
	}
	return nil
}

// freshSession returns the state of the session of a new connection.
func (s *Store) freshSession(ctx context.Context) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return "", database.Errorf("pgxstore: connect: %w", err)
	}
	defer s.disconnect(ctx, conn)
	if after := s.cfg.Pool.Config().AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			return "", database.Errorf("pgxstore: connect: %w", err)
		}
	}
	if err := conn.QueryRow(ctx, s.plain.Session).Scan(&session); err != nil {
		return "", database.Errorf("pgxstore: read the settings of a new connection: %w", err)
	}
	return session, nil
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
	if !c.Sets && !c.Session {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = g.changed || c.Session
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

// discard closes a connection that must not be reused, so that the pool drops it. If a transaction is open, discard rolls it
// back first. Behind a pooler it also resets the session, which outlives the connection.
func (s *Store) discard(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	defer cutInUse(conn)
	if pg := conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		undo := `ROLLBACK`
		if s.pooled.Load() {
			undo = s.plain.ResetSession
		}
		_, _ = pg.Exec(ctx, undo).ReadAll()
	}
	_ = conn.Close(ctx)
}
