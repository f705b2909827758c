package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

func openPostgres(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func postgresVersion(t *testing.T, db *sql.DB) (version int) {
	t.Helper()
	if err := db.QueryRow(`SELECT max(version) FROM txonce_schema`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

func TestApplyPostgresByManyNodesAtOnce(t *testing.T) {
	for name, server := range map[string]func(testing.TB) string{"15": testdb.Postgres, "18": testdb.Postgres18} {
		t.Run(name, func(t *testing.T) {
			dsn := testdb.Schema(t, server(t))
			var wg sync.WaitGroup
			for range 6 {
				db := openPostgres(t, dsn+"&default_transaction_isolation=serializable")
				wg.Go(func() {
					if err := migrations.Apply(context.Background(), db, "postgres", ""); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if v := postgresVersion(t, openPostgres(t, dsn)); v != migrations.Latest("postgres") {
				t.Errorf("version %d, want %d", v, migrations.Latest("postgres"))
			}
		})
	}
}

// The schema need not exist, and need not be in search_path; its name is quoted.
func TestApplyPostgresInASchema(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	db := openPostgres(t, dsn)
	var here string
	if err := db.QueryRow(`SELECT current_schema()`).Scan(&here); err != nil {
		t.Fatal(err)
	}
	schema := here + ` "Odd" name`
	quoted := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP SCHEMA IF EXISTS ` + quoted + ` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := migrations.Apply(t.Context(), db, "postgres", schema); err != nil {
			t.Fatal(err)
		}
	}
	files, err := migrations.FS("postgres")
	if err != nil {
		t.Fatal(err)
	}
	ups, _ := fs.Glob(files, "*.up.sql")
	tables := 0
	for _, up := range ups {
		text, err := fs.ReadFile(files, up)
		if err != nil {
			t.Fatal(err)
		}
		tables += strings.Count(string(text), "\nCREATE TABLE ")
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM pg_tables WHERE schemaname = $1`, schema).Scan(&n); err != nil ||
		n != tables {
		t.Errorf("%d tables in the schema, want %d; %v", n, tables, err)
	}
	if err := db.QueryRow(`SELECT count(*) FROM pg_tables WHERE schemaname = $1`, here).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables elsewhere, %v", n, err)
	}
	if err := db.QueryRow(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d advisory locks left, %v", n, err)
	}
	var path string
	if err := db.QueryRow(`SHOW search_path`).Scan(&path); err != nil || path != here {
		t.Errorf("search_path is %q afterwards, %v", path, err)
	}
}

func TestApplyPostgresRefusesANewerSchema(t *testing.T) {
	db := openPostgres(t, testdb.Schema(t, testdb.Postgres(t)))
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO txonce_schema (version, works_with) VALUES (99, 98)`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "postgres", ""); !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("got %v", err)
	}
}
