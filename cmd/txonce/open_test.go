package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/cli"
)

// An error about a DSN or an address has nothing of its password.
func TestErrorsHideThePassword(t *testing.T) {
	const secret = "s3cr3t"
	for _, dsn := range []string{
		"postgres://billing:" + secret + "/word@db/billing",
		"postgres://billing:" + secret + ":word/x@db/billing",
		"postgres://billing:pass%" + secret + "@db/billing",
		"postgres://billing:" + secret + "@db/billing?sslmode=never",
		"host=db password = " + secret + " sslmode=never",
		`host=db password='a\' ` + secret + `' sslmode=never`,
		"user=billing password=" + secret + " sslmode=never",
		"mysql://billing:pass%" + secret + "@db/billing",
		"mysql://billing:" + secret + "@db/billing?tls=never",
		"billing:" + secret + "@tcp(db:3306)/billing",
		"billing:" + secret + "@/billing",
		"oracle://billing:" + secret + "@db/billing",
	} {
		_, err := open(t.Context(), cli.Target{DSN: dsn})
		if cli.ExitCode(err) != cli.ExitUsage || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v (%d)", dsn, err, cli.ExitCode(err))
		}
	}
	for _, s := range sources() {
		if s.Flag == "amqp" {
			if err := s.Check(t.Context(), "amqp://guest:pass%"+secret+"@mq/", "orders", time.Hour); err == nil ||
				strings.Contains(err.Error(), secret) {
				t.Error(err)
			}
		}
	}
}

// The file that is opened is the one that is named, whatever a URI takes its characters for.
func TestSQLitePath(t *testing.T) {
	for _, name := range []string{"100%25.db", "a#b.db", "a%3fb.db", "a b.db", "%zz.db"} {
		path := filepath.Join(t.TempDir(), name)
		db, err := open(t.Context(), cli.Target{DSN: path, Create: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := db.SQL.ExecContext(t.Context(), `CREATE TABLE t (x)`); err != nil {
			t.Error(err)
		}
		db.Close()
		files, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(files) != 1 || files[0].Name() != name {
			t.Errorf("%s: the files are %v, %v", name, files, err)
		}
	}
	path := filepath.Join(t.TempDir(), "a b.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := open(t.Context(), cli.Target{DSN: "file:" + strings.ReplaceAll(path, " ", "%20")})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
}

// A database that exists keeps its journal mode.
func TestSQLiteJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	for _, want := range []string{"wal", "delete"} {
		db, err := open(t.Context(), cli.Target{DSN: path, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		var mode string
		if err := db.SQL.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&mode); err != nil || mode != want {
			t.Errorf("journal_mode %q, %v; want %q", mode, err, want)
		}
		if _, err := db.SQL.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS t (x)`); err != nil {
			t.Error(err)
		}
		if err := db.SQL.QueryRowContext(t.Context(), `PRAGMA journal_mode = delete`).Scan(&mode); err != nil {
			t.Error(err)
		}
		db.Close()
	}
}

// A broker that accepts connections and never answers does not hold a command longer than --timeout.
func TestSilentKafka(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := sources()[0].Check(ctx, l.Addr().String(), "orders", time.Hour); err == nil ||
		!strings.Contains(err.Error(), "no answer: context deadline exceeded") {
		t.Errorf("check: %v", err)
	}
	if _, _, err := rereadKafka(ctx, l.Addr().String(), "billing", "orders"); err == nil ||
		!strings.Contains(err.Error(), "no answer: context deadline exceeded") {
		t.Errorf("audit: %v", err)
	}
}
