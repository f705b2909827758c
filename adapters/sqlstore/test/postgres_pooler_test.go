package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// poolerModes are the values of pgx's default_query_exec_mode that work behind a PgBouncer in transaction mode. The
// second one sends all parameters as text in a single message, like drivers that interpolate parameters.
var poolerModes = []string{"exec", "simple_protocol", "cache_describe"}

// TestPostgresBehindPgBouncer runs the cases of TestPostgres through a pooler. Each case runs in one of the modes, and
// at one isolation level.
func TestPostgresBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for i, mode := range poolerModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			deduptest.TestStore(t, deduptest.Harness[*sql.Tx]{
				New: func(t *testing.T) deduptest.DB[*sql.Tx] {
					return newPostgresDBAt(t,
						behindPgBouncer(t, mode))
				},
				Isolations: isolations,
				Select: func(name, level string) bool {
					return matrix.Dealt(name, (i+1)%len(poolerModes), len(poolerModes)) &&
						isolations.One(1)(name, level)
				},
				Codes: deduptest.PostgresCodes(),
			})
		})
	}
}

func TestOutboxPostgresBehindPgBouncer(t *testing.T) {
	t.Parallel()
	modes := poolerModes[:2] // the third mode sends parameters like the first one
	for i, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestStore(t, outboxtest.Harness[*sql.Tx]{
				// pgxstore runs the other half
				Select: func(name string) bool { return matrix.Dealt(name, 2*i, 2*len(modes)) },
				New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*sql.Tx] {
					pooled, _ := testdb.ReusedPgBouncer(t, suiteTables)
					return outboxOf(newNode(t, keptDB(t, "pgx", pooled+"&default_query_exec_mode="+mode), sqlstore.Config{
						Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{KeepSent: o.KeepSent},
					}))
				},
				TTL: time.Second, // Renew waits for a disk
				Run: sideBySide,
			})
		})
	}
}

func behindPgBouncer(t *testing.T, mode string) postgresPlace {
	through := func(dsn string) string { return dsn + "&default_query_exec_mode=" + mode }
	pooled, direct := testdb.ReusedPgBouncer(t, suiteTables)
	return postgresPlace{
		dsn: through(pooled),
		another: func(t *testing.T) string {
			pooled, _ := testdb.PgBouncer(t)
			return through(pooled)
		},
		forgets: func(t *testing.T) string { // the pooler does not pass this setting on, so it is set for another role
			_, direct := testdb.PgBouncer(t)
			exec(t, openDB(t, "pgx", direct), testdb.PostgresTables(t, suiteTables))
			exec(t, openDB(t, "pgx", direct), `DO $$ BEGIN EXECUTE format('ALTER ROLE %I SET synchronous_commit = off', current_user); END $$`)
			fresh, _ := testdb.StartPgBouncer(t, direct)
			return through(fresh)
		},
		// The connection is cut between pooler and server, so the pooler itself must answer a COMMIT of unknown
		// outcome.
		faulty: func(t *testing.T, f deduptest.Fault) string {
			pooled, _ := testdb.StartPgBouncer(t, wireproxy.Postgres(t, direct, f))
			return through(pooled)
		},
	}
}

// encodesFirst are connections of a driver that, like lib/pq, encodes parameters before it prepares a statement.
type encodesFirst struct{ driver.Connector }

func (c encodesFirst) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return encodingFirst{conn.(*stdlib.Conn)}, nil
}

type encodingFirst struct{ *stdlib.Conn }

func (encodingFirst) CheckNamedValue(v *driver.NamedValue) (err error) {
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

// Register fails for a driver that cannot work through a pooler with its settings. The driver would otherwise fail for
// each message.
func TestPostgresPoolerModes(t *testing.T) {
	t.Parallel()
	pooled, direct := testdb.PgBouncer(t)
	if err := migrations.Apply(t.Context(), openDB(t, "pgx", direct), "postgres", ""); err != nil {
		t.Fatal(err)
	}
	session, _ := testdb.StartPgBouncer(t, direct, "pool_mode = session")
	narrow, _ := testdb.StartPgBouncer(t, direct, "default_pool_size = 1")
	for _, tt := range []struct {
		name, dsn string
		want      string // empty: accepted
	}{
		{"pgx's default", pooled, "default_query_exec_mode=exec"},
		{"describe_exec", pooled + "&default_query_exec_mode=describe_exec", "default_query_exec_mode=exec"},
		{"exec", pooled + "&default_query_exec_mode=exec", ""},
		{"cache_describe", pooled + "&default_query_exec_mode=cache_describe", ""},
		{"simple_protocol", pooled + "&default_query_exec_mode=simple_protocol", ""},
		{"pgx's default without a pooler", direct, ""},
		{"pgx's default in session mode", session, ""},
		// the check is inconclusive and does not hang
		{"one session for all", narrow + "&default_query_exec_mode=exec", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 { // a server session may still have statements of the previous case
				db := openDB(t, "pgx", tt.dsn)
				s := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres})
				if tt.want != "" {
					s.PoolerWithin(2 * time.Minute)
					s.PoolerRounds(0) // pgx encodes parameters late: no coincidence is needed
				}
				err := s.Register(t.Context(), "billing", 0)
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("Register = %v", err)
				case tt.want != "" && (err == nil || s.Retryable(err) || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("Register = %v; want an error that says %q, and is not retryable", err, tt.want)
				}
			}
		})
	}
	t.Run("a driver that encodes parameters first", func(t *testing.T) {
		cfg, err := pgx.ParseConfig(pooled + "&default_query_exec_mode=describe_exec")
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(encodesFirst{stdlib.GetConnector(*cfg)})
		t.Cleanup(func() { db.Close() })
		s := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres})
		s.PoolerWithin(2 * time.Minute)
		if err := s.Register(t.Context(), "billing", 0); err == nil || s.Retryable(err) ||
			!strings.Contains(err.Error(), "binary_parameters=yes") {
			t.Errorf("Register = %v", err)
		}
	})
	t.Run("one connection", func(t *testing.T) {
		db := openDB(t, "pgx", pooled+"&default_query_exec_mode=exec")
		db.SetMaxOpenConns(1)
		if err := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres}).Register(t.Context(), "billing",
			0); err != nil {
			t.Error(err)
		}
	})
	t.Run("all others are in use", func(t *testing.T) {
		db := openDB(t, "pgx", pooled+"&default_query_exec_mode=exec")
		db.SetMaxOpenConns(2)
		err := inTx(t.Context(), db, nil, func(*sql.Tx) error {
			return newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres}).Register(t.Context(), "billing", 0)
		})
		if err != nil {
			t.Error(err)
		}
	})
}
