package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A setting that breaks txonce's statements ends the start of a consumer and of a relay at once, and the error names
// it.
func TestStartRefusesSettings(t *testing.T) {
	m, p := openMySQL(t), openPostgres(t, testdb.Postgres18(t))
	for _, test := range []struct{ name, driver, dsn, want string }{
		{"not strict", "mysql", testdb.WithMySQL(t, m.dsn, "sql_mode=%27%27"), "is not strict"},
		{"no autocommit", "mysql", testdb.WithMySQL(t, m.dsn, "autocommit=0"), "autocommit is off"},
		{"latin1", "mysql", testdb.WithMySQL(t, m.dsn, "charset=latin1"), "charset=utf8mb4"},
		{"safe updates", "mysql", testdb.WithMySQL(t, m.dsn, "sql_safe_updates=1"), "sql_safe_updates is ON"},
		{"few rows", "mysql", testdb.WithMySQL(t, m.dsn, "sql_select_limit=10"), "sql_select_limit is 10"},
		{
			"bytes as texts", "pgx", withParams(t, p.dsn, "bytea_output", "escape", "default_query_exec_mode", "exec"),
			"bytea_output is escape",
		},
		{"bytes in simple statements", "pgx", withParams(t, p.dsn, "bytea_output", "escape", "default_query_exec_mode",
			"simple_protocol"), "bytea_output is escape"},
		{
			"times as texts", "pgx", withParams(t, p.dsn, "DateStyle", "SQL, DMY", "default_query_exec_mode", "exec"),
			"DateStyle is SQL, DMY",
		},
		{"a fixed time for NOW()", "mysql", testdb.WithMySQL(t, m.dsn, "timestamp=1"), "timestamp is set"},
		{"no NULL in arrays", "pgx", withParams(t, p.dsn, "array_nulls", "off"), "array_nulls is off"},
		{"another encoding", "pgx", withParams(t, p.dsn, "client_encoding", "LATIN1"), "client_encoding is LATIN1"},
		{
			"backslashes", "pgx", withParams(t, p.dsn, "standard_conforming_strings", "off"),
			"standard_conforming_strings is off",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dialect := sqlstore.Postgres
			if test.driver == "mysql" {
				dialect = sqlstore.MySQL
			}
			n := newNode(t, openDB(t, test.driver, test.dsn), sqlstore.Config{Dialect: dialect, AllowAsyncCommit: true})
			refused := func(who string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, dedup.ErrSettings) {
					t.Errorf("%s = %v, want ErrSettings that says %q", who, err, test.want)
				}
			}
			c, err := consumer.New(consumer.Config[*sql.Tx]{
				Name: "billing", Store: n.Store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
				Handle: func(context.Context, *sql.Tx, *consumer.Message) error { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			refused("Start", c.Start(ctx))
			r, err := relay.New(relay.Config{
				Queue: n.Store, Publisher: new(outboxtest.FakePublisher),
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Run(ctx)
			if refused("Run", err); !errors.Is(err, driver.ErrSettings) {
				t.Errorf("Run = %v, want ErrSettings", err)
			}
			if ctx.Err() != nil {
				t.Error("the start waited")
			}
		})
	}
}

// Settings that change only texts are accepted where the driver asks for no texts.
func TestStartAcceptsSettings(t *testing.T) {
	p := openPostgres(t, testdb.Postgres18(t))
	n := newNode(t, openDB(t, "pgx", withParams(t, p.dsn, "bytea_output", "escape", "DateStyle", "SQL, DMY",
		"IntervalStyle", "sql_standard", "TimeZone", "Asia/Kathmandu")),
		sqlstore.Config{Dialect: sqlstore.Postgres, AllowAsyncCommit: true})
	if err := n.Register(t.Context(), "billing", 0); err != nil {
		t.Error(err)
	}
}

func withParams(t *testing.T, dsn string, pairs ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}
