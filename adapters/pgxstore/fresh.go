package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// learn remembers the state of the session of a new connection, after the hooks of the pool. It calls check, unless that is nil, with the
// connection.
func (s *Store) learn(ctx context.Context, check func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return unlearned(err)
	}
	defer s.disconnect(ctx, conn)
	if err := s.renew(ctx, conn); err != nil {
		return unlearned(err)
	}
	if check != nil {
		if err := check(ctx, conn); err != nil {
			return err
		}
	}
	end := ""
	if conn.PgConn().TxStatus() != 'I' {
		end = `; COMMIT`
	}
	session, err := s.state(ctx, conn.PgConn(), s.plain.FreshSession+end)
	if err != nil {
		return unlearned(err)
	}
	s.sessionState.Store(&session)
	return nil
}

func unlearned(err error) error {
	return database.Errorf("pgxstore: read the settings of a new connection, beside those of the pool: %w", err)
}

// renew makes the session of a new connection as a claim expects it. A pooler may give the connection a session that another client has changed.
// Therefore renew then resets the session, and runs the hooks again, because the reset undoes what they have set. Then it leaves a
// transaction open, because the pooler may give the next one another session.
func (s *Store) renew(ctx context.Context, conn *pgx.Conn) error {
	pg := conn.PgConn()
	server, err := servedBy(ctx, pg)
	if err != nil {
		return err
	}
	pooled := server != pg.PID()
	s.pooled.Store(pooled)
	if !pooled {
		return s.runHooks(ctx, conn)
	}
	met, err := s.state(ctx, pg, `BEGIN; `+s.plain.FreshSession)
	if err == nil {
		err = s.reset(ctx, pg)
	}
	if err == nil {
		_, err = pg.Exec(ctx, broughtAgain(conn.Config().RuntimeParams, met)).ReadAll()
	}
	if hook := conn.Config().AfterConnect; err == nil && hook != nil {
		err = hook(ctx, pg)
	}
	if err != nil {
		return err
	}
	if reset, err := s.state(ctx, pg, s.plain.FreshSession); err != nil {
		return err
	} else if met != reset {
		s.cfg.Logger.WarnContext(ctx, "pgxstore: reset a session of the pooler: another client has changed it, or the pooler sets it up, which pgxstore does not support",
			"found", met, "want", reset)
	}
	return s.runHooks(ctx, conn)
}

// broughtAgain returns the statement that sets again what a connection has brought as its parameters, if the pooler did not ignore them: the state
// that it met shows them.
func broughtAgain(params map[string]string, met string) string {
	sql := `SELECT 1`
	again := func(name string, shown func(value string) bool) {
		if value, ok := params[name]; ok && shown(value) {
			sql += fmt.Sprintf(`, set_config('%s', '%s', false)`, name, strings.ReplaceAll(value, "'", "''"))
		}
	}
	again("synchronous_commit", func(value string) bool { return strings.HasPrefix(met, value+" ") })
	again("search_path", func(value string) bool { return strings.HasSuffix(met, " "+value) })
	return sql
}

// runHooks runs the hooks of the pool for a new connection and for one that is acquired. It records whether the latter change the session.
func (s *Store) runHooks(ctx context.Context, conn *pgx.Conn) error {
	pool := s.cfg.Pool.Config()
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			return err
		}
	}
	if !s.hooked {
		return nil
	}
	before, err := s.state(ctx, conn.PgConn(), s.plain.FreshSession)
	if err != nil {
		return err
	}
	if hook := pool.PrepareConn; hook != nil {
		_, err = hook(ctx, conn)
	} else {
		pool.BeforeAcquire(ctx, conn) //nolint:staticcheck // deprecated, but it still runs
	}
	if err != nil {
		return err
	}
	after, err := s.state(ctx, conn.PgConn(), s.plain.FreshSession)
	if err == nil && after != before {
		s.hookSets.Store(true)
	}
	return err
}

// state sends sql, which contains FreshSession, and returns the state of the session.
func (s *Store) state(ctx context.Context, pg *pgconn.PgConn, sql string) (string, error) {
	results, err := pg.Exec(ctx, sql).ReadAll()
	for _, result := range results {
		if err == nil && len(result.Rows) == 1 {
			return string(result.Rows[0][0]), nil
		}
	}
	return "", cmp.Or(err, errors.New("the server did not tell the state of the session"))
}

// reset undoes in the open transaction what handlers may have left in the session.
func (s *Store) reset(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, s.plain.Reset).ReadAll()
	if err != nil || len(results) == 0 {
		return err
	}
	var deallocate strings.Builder
	for _, row := range results[len(results)-1].Rows {
		deallocate.Write(row[0])
		deallocate.WriteByte(';')
	}
	if deallocate.Len() > 0 {
		_, err = conn.Exec(ctx, deallocate.String()).ReadAll()
	}
	return err
}
