// Package migrationtools shows that common migration tools can apply and revert the files of package migrations. It is
// a module of its own, so that txonce does not depend on these tools.
package migrationtools_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// server is a database that both tools support.
type server struct {
	name, files string
	open        func(t *testing.T) *sql.DB
	driver      func(*sql.DB) (database.Driver, error)
	goose       goose.Dialect
	tables      string // counts those of the tables whose names follow
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func servers() []server {
	postgres := server{
		files:  "postgres",
		driver: func(db *sql.DB) (database.Driver, error) { return migratepgx.WithInstance(db, &migratepgx.Config{}) },
		goose:  goose.DialectPostgres,
		tables: `SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename IN `,
	}
	postgres15, postgres18 := postgres, postgres
	postgres15.name, postgres18.name = "postgres 15", "postgres 18"
	postgres15.open = func(t *testing.T) *sql.DB { return open(t, "pgx/v5", testdb.Schema(t, testdb.Postgres(t))) }
	postgres18.open = func(t *testing.T) *sql.DB { return open(t, "pgx/v5", testdb.Schema(t, testdb.Postgres18(t))) }
	mariadb := server{
		name: "mariadb", files: "mysql",
		// golang-migrate sends a file as one string; goose does not need multi-statement queries.
		open: func(t *testing.T) *sql.DB {
			return open(t, "mysql", testdb.WithMySQL(t, testdb.MySQL(t), "multiStatements=true&parseTime=true"))
		},
		driver: func(db *sql.DB) (database.Driver, error) {
			return migratemysql.WithInstance(db, &migratemysql.Config{})
		},
		goose:  goose.DialectMySQL,
		tables: `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN `,
	}
	mysql := mariadb
	mysql.name = "mysql"
	return []server{postgres15, postgres18, {
		name: "sqlite", files: "sqlite",
		open: func(t *testing.T) *sql.DB { return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")) },
		driver: func(db *sql.DB) (database.Driver, error) {
			return migratesqlite.WithInstance(db, &migratesqlite.Config{})
		},
		goose:  goose.DialectSQLite3,
		tables: `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN `,
	}, mariadb, mysql}
}

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// ours returns the names of the tables that the files create.
func (s server) ours(t *testing.T) (names []string) {
	t.Helper()
	files, err := migrations.FS(s.files)
	if err != nil {
		t.Fatal(err)
	}
	ups, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range ups {
		text, err := fs.ReadFile(files, up)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range createTable.FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	if len(names) < 20 {
		t.Fatalf("the files create only %v", names)
	}
	return names
}

// upDownUp migrates up, down and up again. The second up proves that down left nothing behind.
func upDownUp(t *testing.T, s server, db *sql.DB, up, down func() error) {
	t.Helper()
	ours := s.ours(t)
	count := s.tables + "('" + strings.Join(ours, "', '") + "')"
	for _, step := range []struct {
		name string
		do   func() error
		want int
	}{{"up", up, len(ours)}, {"down", down, 0}, {"up again", up, len(ours)}} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var n int
		if err := db.QueryRow(count).Scan(&n); err != nil || n != step.want {
			t.Fatalf("after %s: %d tables, want %d (%v)", step.name, n, step.want, err)
		}
	}
	var version int
	if err := db.QueryRow(`SELECT max(version) FROM txonce_schema`).Scan(&version); err != nil ||
		version != migrations.Latest(s.files) {
		t.Errorf("version %d, want %d (%v)", version, migrations.Latest(s.files), err)
	}
	// After a tool has migrated, Apply finds nothing to do.
	if err := migrations.Apply(t.Context(), db, s.files, ""); err != nil {
		t.Errorf("Apply afterwards: %v", err)
	}
}

func TestGolangMigrate(t *testing.T) {
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			files, err := migrations.FS(s.files)
			if err != nil {
				t.Fatal(err)
			}
			source, err := iofs.New(files, ".")
			if err != nil {
				t.Fatal(err)
			}
			db := s.open(t)
			driver, err := s.driver(db)
			if err != nil {
				t.Fatal(err)
			}
			m, err := migrate.NewWithInstance("iofs", source, s.name, driver)
			if err != nil {
				t.Fatal(err)
			}
			upDownUp(t, s, db, m.Up, m.Down)
			if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
				t.Errorf("up of what is up to date: %v", err)
			}
		})
	}
}

func TestGoose(t *testing.T) {
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			files, err := migrations.Goose(s.files)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fs.Stat(files, "."); err != nil {
				t.Fatal(err)
			}
			db := s.open(t)
			p, err := goose.NewProvider(s.goose, db, files)
			if err != nil {
				t.Fatal(err)
			}
			up := func() error {
				done, err := p.Up(t.Context())
				if err == nil && len(done) != migrations.Latest(s.files) {
					t.Errorf("goose applied %d files, want %d", len(done), migrations.Latest(s.files))
				}
				return err
			}
			upDownUp(t, s, db, up, func() error {
				_, err := p.DownTo(t.Context(), 0)
				return err
			})
		})
	}
}
