package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// poolerModes are the values of default_query_exec_mode that work behind a PgBouncer in transaction mode.
var poolerModes = []string{"exec", "simple_protocol", "cache_describe"}

// TestStoreBehindPgBouncer is TestStore through a pooler. Each transaction must set what it needs itself, because the
// next one may run in another session. Each case runs in one of the modes, and at one isolation level; sqlstore takes
// others.
func TestStoreBehindPgBouncer(t *testing.T) {
	t.Parallel() // beside the other suites
	for i, mode := range poolerModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			deduptest.TestStore(t, deduptest.Harness[pgx.Tx]{
				New:        func(t *testing.T) deduptest.DB[pgx.Tx] { return newDBAt(t, behindPgBouncer(t, mode)) },
				Isolations: isolations,
				Select: func(name, level string) bool {
					return matrix.Dealt(name, i, len(poolerModes)) && isolations.One(0)(name, level)
				},
				Codes: deduptest.PostgresCodes(),
			})
		})
	}
}

func behindPgBouncer(t *testing.T, mode string) place {
	through := func(dsn string) string { return dsn + "&default_query_exec_mode=" + mode }
	pooled, direct := testdb.ReusedPgBouncer(t, suiteTables)
	return place{
		dsn: through(pooled),
		another: func(t *testing.T) string {
			pooled, _ := testdb.PgBouncer(t)
			return through(pooled)
		},
		forgets: func(t *testing.T) string { // the pooler does not pass this parameter on, so another role has it
			_, direct := testdb.PgBouncer(t)
			makeTables(t, testPool(t, direct, 1), suiteTables)
			conn, err := pgx.Connect(t.Context(), direct)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			if _, err := conn.Exec(t.Context(), "ALTER ROLE "+conn.Config().User+
				" SET synchronous_commit = off"); err != nil {
				t.Fatal(err)
			}
			fresh, _ := testdb.StartPgBouncer(t, direct)
			return through(fresh)
		},
		// The connection is cut behind the pooler, which then has to answer a COMMIT whose outcome it does not know.
		faulty: func(t *testing.T, f deduptest.Fault) string {
			pooled, _ := testdb.StartPgBouncer(t, wireproxy.Postgres(t, direct, f))
			return through(pooled)
		},
	}
}

// The same for the outbox and its relays.
func TestOutboxBehindPgBouncer(t *testing.T) {
	t.Parallel() // beside the other suites
	for i, mode := range poolerModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			// sqlstore runs the other half
			half := func(name string) bool { return matrix.Dealt(name, 2*i+1, 2*len(poolerModes)) }
			testOutbox(t, half, func(t *testing.T) string {
				pooled, _ := testdb.ReusedPgBouncer(t, outboxTables)
				return pooled + "&default_query_exec_mode=" + mode
			})
		})
	}
}
