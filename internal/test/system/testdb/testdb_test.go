package testdb_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
)

func TestSchema(t *testing.T) {
	for _, server := range []struct {
		name string
		dsn  func(testing.TB) string
		want string
	}{
		{"PostgreSQL 15", testdb.Postgres, "15."},
		{"PostgreSQL 18", testdb.Postgres18, "18."},
	} {
		t.Run(server.name, func(t *testing.T) {
			dsn := server.dsn(t)
			var schema string
			t.Run("own schema", func(t *testing.T) {
				conn := connect(t, testdb.Schema(t, dsn))
				if version := conn.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version,
					server.want) {
					t.Errorf("server_version = %s, want %s…", version, server.want)
				}
				query(t, conn, "SELECT current_schema()", &schema)
				if _, err := conn.Exec(t.Context(), "CREATE TABLE ledger (id int)"); err != nil {
					t.Fatal(err)
				}
			})
			var left int
			query(t, connect(t, dsn), "SELECT count(*) FROM pg_namespace WHERE nspname = '"+schema+"'", &left)
			if schema == "" || left != 0 {
				t.Errorf("schema %q is still there after its test", schema)
			}
		})
	}
}

// PgBouncer really shares server connections: more clients than connections are served, and one client gets different
// connections.
func TestPgBouncer(t *testing.T) {
	pooled, direct := testdb.PgBouncer(t)
	const clients = 60 // the pool has 20
	conns, servers := make([]*pgx.Conn, clients), make([]int, clients)
	for i := range conns { // connect all first: the pooler replaces a server connection that is unused for 5 s
		conns[i] = connect(t, pooled)
	}
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM pg_sleep(.02)",
				pgx.QueryExecModeExec).Scan(&servers[i])
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(servers)
	if different := slices.Compact(servers); servers[0] == 0 || len(different) > 20 {
		t.Errorf("%d clients were served by the processes %v; want all of them to be, by 20 at the most", clients,
			different)
	}
	var name string
	for _, dsn := range []string{pooled, direct} {
		if query(t, connect(t, dsn), "SELECT current_schema()", &name); !strings.HasPrefix(name, "testpgbouncer_") {
			t.Errorf("the schema is %s, want one of the test's own", name)
		}
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.PgConn().Close(t.Context()) })
	return conn
}

func query(t *testing.T, conn *pgx.Conn, sql string, into any) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(into); err != nil {
		t.Fatal(err)
	}
}
