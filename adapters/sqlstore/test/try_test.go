package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// refusing is a driver of a server that refuses statements that contain part: with err, or if that is nil as a
// statement that is none.
type refusing struct {
	driver.Driver
	part string
	err  error
}

func (r refusing) Open(dsn string) (driver.Conn, error) {
	conn, err := r.Driver.Open(dsn)
	return refusingConn{watchedConn{Conn: conn}, r}, err
}

type refusingConn struct {
	watchedConn
	refusing
}

func (c refusingConn) Prepare(query string) (driver.Stmt, error) {
	switch {
	case !strings.Contains(query, c.part):
		return c.Conn.Prepare(query)
	case c.err != nil:
		return nil, c.err
	}
	return c.Conn.Prepare("SELECT FROM WHERE " + query)
}

func refusingDriver(d driver.Driver, part string, err error) (name string) {
	name = fmt.Sprintf("refusing %T %d", d, len(sql.Drivers()))
	sql.Register(name, refusing{d, part, err})
	return name
}

// A server that refuses a statement that each message needs is refused at the start, at once.
func TestStartRefusesAServerThatRefusesStatements(t *testing.T) {
	numbered := func(n uint16) error { return &mysql.MySQLError{Number: n, Message: "not on this server"} }
	eachDatabase(t, func(t *testing.T, f fixture) {
		plain := f.open(deduptest.Options{})
		for _, tt := range []struct {
			dialects, name, part string
			err                  error
		}{
			{"mysql", "no session", "wait_timeout = CAST", numbered(1232)},
			{"mysql", "no claim", "ON DUPLICATE KEY UPDATE", nil},
			{"mysql", "no function", "ON DUPLICATE KEY UPDATE", numbered(1305)},
			{"mysql", "no lists", "JSON_TABLE", numbered(3569)},
			{"mysql", "no lists that lock", "FOR UPDATE", numbered(3569)},
			{"postgres", "no claim", "INSERT INTO", nil},
			{"sqlite", "no claim", "INSERT INTO", nil},
			{"sqlite", "no lists", "json_each", nil},
		} {
			if tt.dialects != f.dialect {
				continue
			}
			t.Run(tt.name, func(t *testing.T) {
				db := openDB(t, refusingDriver(f.Driver(), tt.part, tt.err), f.dsn)
				n := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Dialect(f.dialect)})
				refused := func(who string, err error) {
					t.Helper()
					if err == nil || !strings.Contains(err.Error(), "the server refuses a statement") ||
						n.Retryable(err) {
						t.Errorf("%s = %v, retryable: %v", who, err, n.Retryable(err))
					}
				}
				refused("Check", n.Check(t.Context()))
				c, err := consumer.New(consumer.Config[*sql.Tx]{
					Name: "billing", Store: n.Store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
					Handle: func(context.Context, *sql.Tx, *consumer.Message) error { return nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				if strings.HasSuffix(t.Name(), "lists") {
					c.AddSource("kafka orders")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if refused("Start", c.Start(ctx)); ctx.Err() != nil {
					t.Error("the start waited")
				}
			})
		}
		if err := plain.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := plain.Register(t.Context(), "shipping", 0); err != nil {
			t.Error(err)
		}
		if rows := f.count(t, `SELECT count(*) FROM processed_messages`); rows != 0 {
			t.Errorf("%d rows are left of the check", rows)
		}
		if windows := f.count(t, `SELECT count(*) FROM txonce_windows WHERE consumer <> 'shipping'`); windows != 0 {
			t.Errorf("%d windows are left of the check", windows)
		}
	})
}
