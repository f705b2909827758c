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
	session, err := s.freshSession(ctx, check)
	if err != nil {
		return err
	}
	s.sessionState.Store(&session)
	return nil
}

func unlearned(err error) error {
	return database.Errorf("pgxstore: read the settings of a new connection, beside those of the pool: %w", err)
}

// outsideTries is how many connections must have sessions with the same state, if hooks do not work in a transaction.
const outsideTries = 3

// newSession is the session of a new connection after the hooks. certain is false if the hooks do not work in a transaction, or if another client of
// the pooler may have changed the session meanwhile.
type newSession struct {
	state   string
	does    hookEffect
	certain bool
}

// freshSession returns the state of the session of a new connection. Behind a pooler, the hooks run in a transaction, so that no other client can
// change the session meanwhile. Hooks that do not work in a transaction run outside of one. If the session then differs from its state after the
// reset, either the hooks have changed it or another client has. Therefore outsideTries connections must then find the same.
func (s *Store) freshSession(ctx context.Context, check func(context.Context, *pgx.Conn) error) (state string, err error) {
	found, err := s.renewed(ctx, true, check)
	for n := 0; err == nil && !found.certain && n < outsideTries; n++ {
		last := found
		found, err = s.renewed(ctx, false, check)
		if n > 0 && err == nil && !found.certain && found != last {
			err = unlearned(errors.New("connections to the pooler got sessions that other clients have changed"))
		}
	}
	if err == nil {
		s.noteHook(found.does)
	}
	return found.state, err
}

// renewed makes a connection, resets its session if it is behind a pooler, runs the hooks, and returns the session. If inTx, the hooks run in a
// transaction.
func (s *Store) renewed(ctx context.Context, inTx bool, check func(context.Context, *pgx.Conn) error) (found newSession, err error) {
	conn, bare, err := s.connectBare(ctx)
	if err != nil {
		return found, unlearned(err)
	}
	defer s.disconnect(ctx, conn)
	pg := conn.PgConn()
	server, err := servedBy(ctx, pg)
	if err != nil {
		return found, unlearned(err)
	}
	pooled, reset := server != pg.PID(), ""
	s.pooled.Store(pooled)
	inTx = inTx && pooled
	if pooled {
		if reset, err = s.resetNew(ctx, conn, inTx); err != nil {
			return found, unlearned(err)
		}
	}
	found.does, err = s.runHooks(ctx, conn, bare)
	switch {
	case inTx && (err != nil || !s.stillIn(ctx, pg)):
		return found, nil
	case err != nil:
		return found, unlearned(err)
	}
	if check != nil {
		if err := check(ctx, conn); err != nil {
			return found, err
		}
	}
	end := ""
	if inTx {
		end = `; COMMIT`
	}
	if found.state, err = s.state(ctx, pg, s.plain.FreshSession+end); err != nil {
		return found, unlearned(err)
	}
	found.certain = !pooled || inTx || found.state == reset
	return found, nil
}

// connectBare connects as the pool does, but does not call the hook of pgconn, which it returns: the caller calls it after a reset, and calling
// it twice may fail.
func (s *Store) connectBare(ctx context.Context) (*pgx.Conn, pgconn.AfterConnectFunc, error) {
	cfg, err := s.connConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	bare := cfg.AfterConnect
	cfg.AfterConnect = nil
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, bare, err
}

// resetNew resets the session that a pooler has given to a new connection, because another client may have changed it, and returns its state. If
// inTx, it leaves the transaction open.
func (s *Store) resetNew(ctx context.Context, conn *pgx.Conn, inTx bool) (reset string, err error) {
	pg := conn.PgConn()
	met, err := s.state(ctx, pg, `BEGIN; `+s.plain.FreshSession)
	if err == nil {
		err = s.reset(ctx, pg)
	}
	if err == nil {
		_, err = pg.Exec(ctx, broughtAgain(conn.Config().RuntimeParams, met)).ReadAll()
	}
	if err != nil {
		return "", err
	}
	end := `; COMMIT`
	if inTx {
		end = `; SET LOCAL txonce.learning = 'on'`
	}
	reset, err = s.state(ctx, pg, s.plain.FreshSession+end)
	if err == nil && met != reset {
		s.cfg.Logger.WarnContext(ctx, "pgxstore: reset a session of the pooler: another client has changed it, or the pooler sets it up, which pgxstore does not support",
			"found", met, "want", reset)
	}
	return reset, err
}

// stillIn reports whether the transaction that resetNew has begun is open, and has not failed.
func (s *Store) stillIn(ctx context.Context, pg *pgconn.PgConn) bool {
	results, err := pg.Exec(ctx, `SELECT current_setting('txonce.learning', true)`).ReadAll()
	return err == nil && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == "on"
}

// broughtAgain returns a statement that sets again what a connection has brought as its parameters. A pooler may ignore parameters: met, the state
// before the reset, shows those that it has not ignored.
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

// state sends sql, which contains FreshSession, and returns the state of the session.
func (s *Store) state(ctx context.Context, pg *pgconn.PgConn, sql string) (state string, err error) {
	state, _, err = s.session(ctx, pg, sql)
	return state, err
}

// session is like state. server is the server's process that has the session.
func (s *Store) session(ctx context.Context, pg *pgconn.PgConn, sql string) (state, server string, err error) {
	results, err := pg.Exec(ctx, sql).ReadAll()
	for _, result := range results {
		if err == nil && len(result.Rows) == 1 {
			return string(result.Rows[0][0]), string(result.Rows[0][1]), nil
		}
	}
	return "", "", cmp.Or(err, errors.New("the server did not tell the state of the session"))
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
