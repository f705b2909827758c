package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/txonce/txonce/internal/test/atend"
	"github.com/txonce/txonce/internal/test/dsn"
)

// session is a connection to PostgreSQL by the driver that the test's program has registered as "pgx". A *sql.DB would
// end with a goroutine more than each test has begun with.
type session struct{ driver.Conn }

// pgx returns that driver.
var pgx = sync.OnceValues(func() (driver.DriverContext, error) {
	db, err := sql.Open("pgx", "")
	if err != nil {
		return nil, fmt.Errorf("%w: add import _ \"github.com/jackc/pgx/v5/stdlib\" to a file of the test", err)
	}
	defer db.Close()
	return db.Driver().(driver.DriverContext), nil
})

func connect(ctx context.Context, server string) (session, error) {
	pgx, err := pgx()
	if err != nil {
		return session{}, err
	}
	connector, err := pgx.OpenConnector(dsn.WithPostgres(server, "default_query_exec_mode", "simple_protocol"))
	if err != nil {
		return session{}, err
	}
	conn, err := connector.Connect(ctx)
	return session{conn}, err
}

// exec runs statements.
func (s session) exec(ctx context.Context, statements string) error {
	if _, err := s.Conn.(driver.ExecerContext).ExecContext(ctx, statements, nil); err != nil {
		return fmt.Errorf("%s: %w", statements, err)
	}
	return nil
}

// value returns the first value of a query.
func (s session) value(ctx context.Context, query string) (string, error) {
	rows, err := s.Conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	row := make([]driver.Value, len(rows.Columns()))
	if err = rows.Next(row); errors.Is(err, io.EOF) {
		err = errors.New("it returns no row")
	}
	if err = errors.Join(err, rows.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	return fmt.Sprint(row[0]), nil
}

// admins keeps sessions on PostgreSQL for the set-up and clean-up of later tests: to begin a session costs the server
// more than most statements. They end with this process.
var admins sessions

// An idle session has a goroutine of pgx if the machine was so busy that a statement took 15 ms to send.
func init() { atend.Do(admins.close) }

// sessions are idle connections by DSN.
type sessions struct {
	mu   sync.Mutex
	idle map[string][]session
}

// do runs f on an idle session or on a new one, and keeps the session if f succeeds.
func (s *sessions) do(ctx context.Context, dsn string, f func(session) error) error {
	conn, ok := s.take(ctx, dsn)
	if !ok {
		var err error
		if conn, err = connect(ctx, dsn); err != nil {
			return err
		}
	}
	if err := f(conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil {
		s.idle = map[string][]session{}
	}
	s.idle[dsn] = append(s.idle[dsn], conn)
	return nil
}

// take returns an idle session that its server has not ended.
func (s *sessions) take(ctx context.Context, dsn string) (session, bool) {
	for {
		conn, ok := s.pop(dsn)
		if !ok || conn.Conn.(driver.Pinger).Ping(ctx) == nil {
			return conn, ok
		}
	}
}

func (s *sessions) pop(dsn string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.idle[dsn]
	if len(idle) == 0 {
		return session{}, false
	}
	s.idle[dsn] = idle[:len(idle)-1]
	return idle[len(idle)-1], true
}

// close ends the idle sessions.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, idle := range s.idle {
		for _, conn := range idle {
			_ = conn.Close() // the process ends
		}
	}
	s.idle = nil
}

// execute runs statements as one transaction.
func execute(t testing.TB, dsn, statements string) error {
	ctx, cancel := CleanUpContext(t)
	defer cancel()
	return transact(ctx, dsn, func(s session) error { return s.exec(ctx, statements) })
}

// transact runs f in a transaction, and again after a deadlock: with autovacuum, or with something that a test has left
// running.
func transact(ctx context.Context, dsn string, f func(session) error) error {
	return admins.do(ctx, dsn, func(s session) error {
		for {
			err := s.exec(ctx, "BEGIN")
			if err == nil {
				err = f(s)
			}
			if err == nil {
				err = s.exec(ctx, "COMMIT")
			}
			var failed interface{ SQLState() string }
			if !errors.As(err, &failed) || failed.SQLState() != "40P01" {
				return err
			}
			if err := s.exec(ctx, "ROLLBACK"); err != nil {
				return err
			}
		}
	})
}
