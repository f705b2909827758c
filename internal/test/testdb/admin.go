package testdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/test/atend"
)

// admins keeps sessions on PostgreSQL for the set-up and clean-up of later tests: to begin a session costs the server more than most
// statements. They end with this process.
var admins sessions

// An idle session has a goroutine of pgx if the machine was so busy that a statement took 15 ms to send.
func init() { atend.Do(admins.close) }

// sessions are idle connections by DSN.
type sessions struct {
	mu   sync.Mutex
	idle map[string][]*pgx.Conn
}

// do runs f on an idle session or on a new one, and keeps the session if f succeeds.
func (s *sessions) do(ctx context.Context, dsn string, f func(*pgx.Conn) error) error {
	conn := s.take(ctx, dsn)
	if conn == nil {
		var err error
		if conn, err = pgx.Connect(ctx, dsn); err != nil {
			return err
		}
	}
	if err := f(conn); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil {
		s.idle = map[string][]*pgx.Conn{}
	}
	s.idle[dsn] = append(s.idle[dsn], conn)
	return nil
}

// take returns an idle session that its server has not ended, or nil.
func (s *sessions) take(ctx context.Context, dsn string) *pgx.Conn {
	for conn := s.pop(dsn); conn != nil; conn = s.pop(dsn) {
		if conn.Ping(ctx) == nil {
			return conn
		}
	}
	return nil
}

func (s *sessions) pop(dsn string) *pgx.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.idle[dsn]
	if len(idle) == 0 {
		return nil
	}
	s.idle[dsn] = idle[:len(idle)-1]
	return idle[len(idle)-1]
}

// close ends the idle sessions.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, idle := range s.idle {
		for _, conn := range idle {
			_ = conn.PgConn().Conn().Close() // the process ends
		}
	}
	s.idle = nil
}

// execute runs statements as one transaction.
func execute(t testing.TB, dsn, sql string) error {
	ctx, cancel := cleanUpContext(t)
	defer cancel()
	return transact(ctx, dsn, func(ask ask) error {
		_, err := ask(sql)
		return err
	})
}

// ask runs statements and returns the value that the last one selects.
type ask func(sql string) (value string, err error)

// transact runs f in a transaction, and again after a deadlock: with autovacuum, or with something that a test has left running.
func transact(ctx context.Context, dsn string, f func(ask) error) error {
	return admins.do(ctx, dsn, func(conn *pgx.Conn) error {
		ask := func(sql string) (value string, err error) {
			results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
			if err != nil {
				return "", fmt.Errorf("%s: %w", sql, err)
			}
			if rows := results[len(results)-1].Rows; len(rows) > 0 {
				value = string(rows[0][0])
			}
			return value, nil
		}
		for {
			_, err := ask("BEGIN")
			if err == nil {
				err = f(ask)
			}
			if err == nil {
				_, err = ask("COMMIT")
			}
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "40P01" {
				return err
			}
			if _, err := ask("ROLLBACK"); err != nil {
				return err
			}
		}
	})
}
