package testdb

import (
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/txonce/txonce/migrations"
)

// PostgresTables returns statements that make txonce's tables in one transaction and round trip, followed by the
// statements in more. migrations.Apply does the same, but under a lock: tests that run side by side would wait for each
// other.
func PostgresTables(t testing.TB, more string) (sql string) {
	t.Helper()
	all, err := allMigrations("postgres")
	if err != nil {
		t.Fatal(err)
	}
	return "BEGIN; SET LOCAL synchronous_commit = off;" + all + more + "; COMMIT"
}

// allMigrations returns all files for a database one after the other. It reads the files once.
func allMigrations(database string) (string, error) { return readMigrations[database]() }

var readMigrations = map[string]func() (string, error){
	"postgres": sync.OnceValues(func() (string, error) { return joinedMigrations("postgres") }),
	"mysql":    sync.OnceValues(func() (string, error) { return joinedMigrations("mysql") }),
}

func joinedMigrations(database string) (string, error) {
	files, err := migrations.FS(database)
	if err != nil {
		return "", err
	}
	names, err := fs.Glob(files, "*.up.sql") // sorted
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}
