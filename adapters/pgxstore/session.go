package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// What a handler changes in its session stays with the pooled connection, and would reach the messages after it: a role
// that may not write, another schema, commits that a crash undoes. Three things prevent that. Every statement of ours
// names its schema. A connection is closed after a transaction whose statements changed the session by their text. And
// each claim returns how its session is set: one that is not as Register found it does no work.

// resolve finds, once, the schema that unqualified names mean, and names it from then on. It asks q, because a transaction
// that waits here for a second connection of its pool might wait for ever.
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
		return claims.DatabaseErrorf("pgxstore: find the schema: %w", err)
	}
	s.resolving.Lock()
	defer s.resolving.Unlock()
	if !s.resolved.Load() {
		s.useSchema(schema)
	}
	return nil
}

// useSchema sets the Store's statements. Only New and resolve call it, before anything reads them.
func (s *Store) useSchema(schema string) {
	s.sql = dialect.NewPostgres(schema)
	s.writes = dialect.NewPostgresOutboxWrite(schema)
	s.outbox = dialect.NewPostgresOutbox(schema)
	s.resolved.Store(true)
}

// learn reads how sessions are set that nobody has changed yet, and the encoding of the database.
func (s *Store) learn(ctx context.Context) (encoding string, err error) {
	var session string
	if err := s.cfg.Pool.QueryRow(ctx, s.plain.Session).Scan(&encoding, &session); err != nil {
		return "", claims.DatabaseErrorf("pgxstore: read the database's settings: %w", err)
	}
	s.sessionState.Store(&session)
	return encoding, nil
}

// errDeviates says that a connection's session was changed, so that it must not be used.
var errDeviates = fmt.Errorf("%w: a connection's session settings are not those of a new connection", claims.ErrAgain)

// fits returns errDeviates where session, that of a claim, is neither as it was learned nor as that of a new connection.
func (s *Store) fits(ctx context.Context, session string, standbys bool) error {
	known := s.sessionState.Load()
	if session == "" || known != nil && session == *known {
		return s.durable(session, standbys)
	}
	if pool := s.cfg.Pool.Config(); pool.PrepareConn != nil || pool.BeforeAcquire != nil { //nolint:staticcheck // deprecated, but it still runs
		return s.durable(session, standbys) // it prepares each session for its use
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
	s.sessionState.Store(&fresh) // the role or the database was altered since
	return s.durable(session, standbys)
}

// durable refuses a session whose commits a crash may undo.
func (s *Store) durable(session string, standbys bool) error {
	sync, _, _ := strings.Cut(session, " ")
	if !s.cfg.AllowAsyncCommit && (sync == "off" || sync == "local" && standbys) {
		return claims.DatabaseErrorf("%w: synchronous_commit is %s; set it to on for this role or database, or set Config.AllowAsyncCommit", dedup.ErrNotDurable, sync)
	}
	return nil
}

// freshSession returns how the session of a new connection is set.
func (s *Store) freshSession(ctx context.Context) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return "", claims.DatabaseErrorf("pgxstore: connect: %w", err)
	}
	defer s.disconnect(ctx, conn)
	if after := s.cfg.Pool.Config().AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			return "", claims.DatabaseErrorf("pgxstore: connect: %w", err)
		}
	}
	var encoding string
	if err := conn.QueryRow(ctx, s.plain.Session).Scan(&encoding, &session); err != nil {
		return "", claims.DatabaseErrorf("pgxstore: read the settings of a new connection: %w", err)
	}
	return session, nil
}

// blamesSession reports an error of a claim that another connection may not meet: the role has no rights, transactions are
// read-only, a statement was prepared before a migration.
func blamesSession(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42501" || pg.Code == "25006" || isStalePlan(pg))
}

// settings notes what a statement changes in the session.
func (g *guard) settings(c dialect.Control, sql string, args []any) {
	if !c.Sets && !c.Session {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = g.changed || c.Session
	g.resync = g.resync || c.Sets && namesSync(sql, args)
}

// namesSync reports whether a statement that changes settings may change synchronous_commit.
func namesSync(sql string, args []any) bool {
	for _, arg := range args {
		if name, ok := arg.(string); ok && strings.EqualFold(strings.TrimSpace(name), "synchronous_commit") {
			return true
		}
	}
	return strings.Contains(strings.ToLower(sql), "synchronous_commit")
}

// resyncs makes COMMIT as durable as the claim found commits to be, where the handler may have changed that.
func (g *guard) resyncs(ctx context.Context) error {
	sync, _, known := strings.Cut(g.sessionState, " ")
	if !g.resync || !known || g.store.cfg.AllowAsyncCommit {
		return nil
	}
	if _, err := g.tx.Exec(ctx, g.store.sql.Sync, sync); err != nil {
		return claims.DatabaseErrorf("pgxstore: set synchronous_commit back: %w", err)
	}
	return nil
}

// discard closes a connection that nobody else may get, so that the pool drops it. Its transaction is undone, if there is one:
// then the session of a pooler, which outlives the connection, is reset with it.
func (s *Store) discard(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if pg := conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		undo := `ROLLBACK`
		if s.pooled.Load() {
			undo = s.plain.ResetSession
		}
		_, _ = pg.Exec(ctx, undo).ReadAll()
	}
	_ = conn.Close(ctx)
}
