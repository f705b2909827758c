package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/txonce/txonce/migrations"
)

func openSQLite(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func sqliteFile(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "test.db") }

func TestEveryStepGoesUpAndDown(t *testing.T) {
	for _, db := range []string{"postgres", "sqlite", "mysql"} {
		t.Run(db, func(t *testing.T) {
			fsys, err := migrations.FS(db)
			if err != nil {
				t.Fatal(err)
			}
			ups, _ := fs.Glob(fsys, "*.up.sql")
			downs, _ := fs.Glob(fsys, "*.down.sql")
			if len(ups) != migrations.Latest(db) || len(downs) != len(ups) || len(ups) == 0 {
				t.Errorf("%d up, %d down, latest is %d", len(ups), len(downs), migrations.Latest(db))
			}
		})
	}
}

func TestGooseHasBothDirections(t *testing.T) {
	fsys, err := migrations.Goose("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(fsys, "*.sql")
	if err != nil || len(names) != migrations.Latest("sqlite") {
		t.Fatalf("%v, %v", names, err)
	}
	text, err := fs.ReadFile(fsys, names[0])
	if err != nil {
		t.Fatal(err)
	}
	up, down, found := strings.Cut(string(text), "-- +goose Down")
	if !found || !strings.Contains(up, "-- +goose Up") || !strings.Contains(up, "CREATE TABLE") ||
		!strings.Contains(down, "DROP TABLE") {
		t.Errorf("%s", text)
	}
}

func TestUnknownDatabase(t *testing.T) {
	for _, db := range []string{"oracle", "", ".", "..", "sqlite/.."} {
		if _, err := migrations.FS(db); err == nil {
			t.Errorf("FS(%q) succeeds", db)
		}
		if _, err := migrations.Goose(db); err == nil {
			t.Errorf("Goose(%q) succeeds", db)
		}
		if n := migrations.Latest(db); n != 0 {
			t.Errorf("Latest(%q) = %d", db, n)
		}
		if err := migrations.Apply(t.Context(), nil, db, ""); err == nil {
			t.Errorf("Apply(%q) succeeds", db)
		}
	}
}

func TestApplySQLiteTwice(t *testing.T) {
	db := openSQLite(t, sqliteFile(t))
	for range 2 {
		if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
			t.Fatal(err)
		}
	}
	var n, version int
	if err := db.QueryRow(`SELECT count(*), max(version) FROM txonce_schema`).Scan(&n, &version); err != nil {
		t.Fatal(err)
	}
	if n != migrations.Latest("sqlite") || version != n {
		t.Errorf("%d rows, version %d, want %d", n, version, migrations.Latest("sqlite"))
	}
}

// Nodes are separate pools; they start with whatever busy_timeout they have, and keep it.
func TestApplySQLiteByManyNodesAtOnce(t *testing.T) {
	file := sqliteFile(t)
	var wg sync.WaitGroup
	for range 8 {
		db := openSQLite(t, file+"?_pragma=busy_timeout(7)")
		wg.Go(func() {
			if err := applyPatiently(t.Context(), db); err != nil {
				t.Error(err)
			}
			var timeout int
			if err := db.QueryRow(`PRAGMA busy_timeout`).Scan(&timeout); err != nil || timeout != 7 {
				t.Errorf("busy_timeout is %d afterwards, %v", timeout, err)
			}
		})
	}
	wg.Wait()
}

// applyPatiently calls Apply again if the file stays locked for the 10 s that Apply waits, because a busy disk may be
// that slow. An earlier error means that Apply did not wait.
func applyPatiently(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		began := time.Now()
		err := migrations.Apply(ctx, db, "sqlite", "")
		e, known := errors.AsType[*sqlite.Error](err)
		if !known || e.Code()&0xff != sqlite3.SQLITE_BUSY || time.Since(began) < 10*time.Second || ctx.Err() != nil {
			return err
		}
	}
}

// COMMIT waits for readers, and BEGIN waits for writers, whatever the connection's busy_timeout is.
func TestApplySQLiteWaitsForAReader(t *testing.T) {
	file := sqliteFile(t)
	reader := openSQLite(t, file)
	if _, err := reader.Exec(`CREATE TABLE mine (n integer); INSERT INTO mine VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	rows, err := reader.Query(`SELECT n FROM mine`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	time.AfterFunc(300*time.Millisecond, func() { rows.Close() })
	if err := migrations.Apply(t.Context(), openSQLite(t, file+"?_pragma=busy_timeout(7)"), "sqlite", ""); err != nil {
		t.Error(err)
	}
}

func TestApplyRefusesANewerSchema(t *testing.T) {
	db := openSQLite(t, sqliteFile(t))
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (99, 98, 0)`); err != nil {
		t.Fatal(err)
	}
	err := migrations.Apply(t.Context(), db, "sqlite", "")
	if !errors.Is(err, migrations.ErrNewer) || !strings.Contains(err.Error(), "99") {
		t.Errorf("got %v", err)
	}
}

// The old program of a rolling deployment calls Apply too.
func TestApplyAcceptsANewerSchemaThatWorksWithIt(t *testing.T) {
	db := openSQLite(t, sqliteFile(t))
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (?, ?, 0)`,
		migrations.Latest("sqlite")+1, migrations.Latest("sqlite")); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestApplyOfAStepThatFailsLeavesNothingBehind(t *testing.T) {
	db := openSQLite(t, sqliteFile(t))
	if _, err := db.Exec(`CREATE TABLE dead_letters (somebody_elses INTEGER)`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err == nil || !strings.Contains(err.Error(),
		"0001_processed_messages") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name = 'processed_messages'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables left behind, %v", n, err)
	}
	if _, err := db.Exec(`DROP TABLE dead_letters`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Errorf("the second try: %v", err)
	}
}

func TestSQLiteHasNoSchemas(t *testing.T) {
	db := openSQLite(t, sqliteFile(t))
	if err := migrations.Apply(t.Context(), db, "sqlite", "app"); err == nil {
		t.Error("Apply succeeds in a schema")
	}
}

func ExampleApply() {
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := migrations.Apply(context.Background(), db, "sqlite", ""); err != nil {
		panic(err)
	}
	var version int
	if err := db.QueryRow(`SELECT max(version) FROM txonce_schema`).Scan(&version); err != nil {
		panic(err)
	}
	fmt.Println(version == migrations.Latest("sqlite"))
	// Output: true
}

func ExampleFS() {
	fsys, err := migrations.FS("postgres")
	if err != nil {
		panic(err)
	}
	names, _ := fs.Glob(fsys, "0001*")
	fmt.Println(names)
	// Output: [0001_processed_messages.down.sql 0001_processed_messages.up.sql]
}

func ExampleGoose() {
	fsys, err := migrations.Goose("postgres")
	if err != nil {
		panic(err)
	}
	names, _ := fs.Glob(fsys, "0001*")
	fmt.Println(names)
	// Output: [0001_processed_messages.sql]
}
