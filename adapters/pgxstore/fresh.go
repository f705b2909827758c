package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

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

// mostSessions limits how many sessions of a pooler freshSession resets. Poolers prefer the session that was used last, so two are usual.
const mostSessions = 10

// freshSession returns the state of the session of a new connection. A pooler may give a new connection a session that other clients have
// changed. Therefore freshSession resets the session, and returns its state after the reset. If bringsSettings, a reset would undo those
// settings too: then freshSession returns the state of a session that the pooler gives out for the second time, after a reset, or the state
// that mostSessions sessions have in common.
func (s *Store) freshSession(ctx context.Context) (session string, err error) {
	brings := s.bringsSettings()
	var reset []string
	found := map[string]bool{}
	for range mostSessions {
		server, before, after, err := s.readAndReset(ctx)
		switch {
		case err != nil:
			return "", err
		case before == after || !brings:
			return after, nil
		case slices.Contains(reset, server):
			return before, nil
		}
		reset = append(reset, server)
		session, found[before] = before, true
	}
	if len(found) == 1 {
		return session, nil
	}
	return "", fmt.Errorf("%d connections to the pooler got sessions that other clients have changed", mostSessions)
}

// bringsSettings reports whether the pool sets search_path, role or synchronous_commit in its new connections, or has a hook that may do so.
// RESET undoes what a hook has set.
func (s *Store) bringsSettings() bool {
	pool := s.cfg.Pool.Config()
	for name := range pool.ConnConfig.RuntimeParams {
		switch strings.ToLower(name) {
		case "options", "search_path", "synchronous_commit", "role", "session_authorization":
			return true
		}
	}
	return pool.AfterConnect != nil || pool.BeforeConnect != nil || pool.ConnConfig.AfterConnect != nil
}

// readAndReset connects, and returns the state of the session that the connection gets, before and after a reset. server is the server process
// that has the session. If that process serves only this connection, the session ends here and is not reset: then after is before.
func (s *Store) readAndReset(ctx context.Context) (server, before, after string, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return "", "", "", err
	}
	defer s.disconnect(ctx, conn)
	if hook := s.cfg.Pool.Config().AfterConnect; hook != nil {
		if err := hook(ctx, conn); err != nil {
			return "", "", "", err
		}
	}
	pg := conn.PgConn()
	read := func(sql string, at int) (server, state string, err error) {
		results, err := pg.Exec(ctx, sql).ReadAll()
		if err != nil || len(results) <= at || len(results[at].Rows) == 0 {
			return "", "", cmp.Or(err, errors.New("the server did not tell the state of the session"))
		}
		row := results[at].Rows[0]
		return string(row[0]), string(row[1]), nil
	}
	server, before, err = read(`BEGIN; `+s.plain.FreshSession, 1)
	if err != nil || server == fmt.Sprint(pg.PID()) {
		return server, before, before, err
	}
	if err := s.reset(ctx, pg); err != nil {
		return "", "", "", err
	}
	_, after, err = read(s.plain.FreshSession+`; COMMIT`, 0)
	return server, before, after, err
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
