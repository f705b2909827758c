package migrations_test

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

func openMySQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func mysqlCount(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func mysqlDatabase(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRow(`SELECT DATABASE()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// The DSN needs no special settings, and may switch autocommit off.
func TestApplyMySQLByManyNodesAtOnce(t *testing.T) {
	for _, params := range []string{"parseTime=true", "autocommit=0", "multiStatements=true"} {
		t.Run(params, func(t *testing.T) {
			dsn := testdb.WithMySQL(t, testdb.MySQL(t), params)
			var wg sync.WaitGroup
			for range 6 {
				db := openMySQL(t, dsn)
				wg.Go(func() {
					if err := migrations.Apply(context.Background(), db, "mysql", ""); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			db := openMySQL(t, dsn)
			if v := mysqlCount(t, db, `SELECT max(version) FROM txonce_schema`); v != migrations.Latest("mysql") {
				t.Errorf("version %d, want %d", v, migrations.Latest("mysql"))
			}
			if n := mysqlCount(t, db, `SELECT count(*) FROM txonce_sweep`); n != 1 {
				t.Errorf("%d rows in txonce_sweep", n)
			}
			if free := mysqlCount(t, db, `SELECT IS_FREE_LOCK('`+fmt.Sprintf("txonce.%x",
				sha1.Sum([]byte(mysqlDatabase(t, db))))+`')`); free != 1 {
				t.Error("the lock is still held")
			}
		})
	}
}

// DDL commits by itself: a process may crash after any statement.
func TestApplyMySQLAfterACrashBehindEachStatement(t *testing.T) {
	fsys, err := migrations.FS("mysql")
	if err != nil {
		t.Fatal(err)
	}
	ups, err := fs.Glob(fsys, "*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	var statements []string
	for _, name := range ups {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		statements = append(statements, split(string(text))...)
	}
	if len(statements) < 7 {
		t.Fatalf("%d statements", len(statements))
	}
	whole := openMySQL(t, testdb.MySQL(t))
	if err := migrations.Apply(t.Context(), whole, "mysql", ""); err != nil {
		t.Fatal(err)
	}
	rows := func(db *sql.DB) (n int) {
		for _, table := range []string{"txonce_sweep", "txonce_schema"} {
			n = n*1000 + mysqlCount(t, db, `SELECT count(*) FROM `+table)
		}
		return n
	}
	tables := `SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE()`
	for n := range statements {
		db := openMySQL(t, testdb.MySQL(t))
		for _, q := range statements[:n] {
			if _, err := db.Exec(q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		for range 2 {
			if err := migrations.Apply(t.Context(), db, "mysql", ""); err != nil {
				t.Fatalf("after a crash behind statement %d: %v", n, err)
			}
		}
		if got, want := mysqlCount(t, db, tables), mysqlCount(t, whole, tables); got != want ||
			rows(db) != rows(whole) {
			t.Errorf("after a crash behind statement %d: %d columns, want %d; rows %d, want %d", n, got, want, rows(db),
				rows(whole))
		}
	}
}

func TestApplyMySQLLeavesForeignTablesAlone(t *testing.T) {
	db := openMySQL(t, testdb.MySQL(t))
	if _, err := db.Exec(`CREATE TABLE dead_letters (somebody_elses INT)`); err != nil {
		t.Fatal(err)
	}
	err := migrations.Apply(t.Context(), db, "mysql", "")
	if err == nil || !strings.Contains(err.Error(), "0001_processed_messages") || !strings.Contains(err.Error(),
		"dead_letters") {
		t.Errorf("got %v, want an error that names file and table", err)
	}
	if n := mysqlCount(t, db, `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`); n != 1 {
		t.Errorf("%d tables left behind", n-1)
	}
	if _, err := db.Exec(`DROP TABLE dead_letters`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "mysql", ""); err != nil {
		t.Errorf("the second try: %v", err)
	}
}

func TestApplyMySQLRefusesANewerSchema(t *testing.T) {
	db := openMySQL(t, testdb.MySQL(t))
	if err := migrations.Apply(t.Context(), db, "mysql", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (99, 98, 0)`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), db, "mysql", ""); !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("got %v", err)
	}
}

// The database need not exist, and the pool's other connections keep their database.
func TestApplyMySQLInAnotherDatabase(t *testing.T) {
	db := openMySQL(t, testdb.MySQL(t))
	var here string
	if err := db.QueryRow(`SELECT DATABASE()`).Scan(&here); err != nil {
		t.Fatal(err)
	}
	other := here[:min(len(here), 50)] + " `Odd` name"
	quoted := "`" + strings.ReplaceAll(other, "`", "``") + "`"
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP DATABASE IF EXISTS ` + quoted); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := migrations.Apply(t.Context(), db, "mysql", other); err != nil {
			t.Fatal(err)
		}
	}
	var now string
	if err := db.QueryRow(`SELECT DATABASE()`).Scan(&now); err != nil || now != here {
		t.Errorf("the pool is in %q now, %v", now, err)
	}
	if n := mysqlCount(t, db, `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`); n != 0 {
		t.Errorf("%d tables here", n)
	}
	if n := mysqlCount(t, db, `SELECT max(version) FROM `+quoted+`.txonce_schema`); n != migrations.Latest("mysql") {
		t.Errorf("version %d there", n)
	}
	dsn := testdb.MySQL(t)
	none := openMySQL(t, dsn[:strings.LastIndex(dsn, "/")+1])
	if err := migrations.Apply(t.Context(), none, "mysql", ""); err == nil || !strings.Contains(err.Error(),
		"no database is chosen") {
		t.Errorf("without a database: %v", err)
	}
}

// split returns the statements of a file, each without its semicolon at the end of a line.
func split(file string) (statements []string) {
	for text := range strings.SplitSeq(file, ";\n") {
		if text = strings.TrimSpace(comment.ReplaceAllString(text, "")); text != "" {
			statements = append(statements, text)
		}
	}
	return statements
}

var comment = regexp.MustCompile(`(?m)^\s*--.*$`)
