package main

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The command line works through a pooler that gives each transaction another session, without parameters in the DSN.
func TestPooler(t *testing.T) {
	t.Parallel()
	line, direct := testdb.PgBouncer(t)
	line = strings.ReplaceAll(line, "default_query_exec_mode=exec", "")
	if err := runLine(t.Context(), io.Discard, "migrate", "up", "--dsn", line); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", direct)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	billing, err := (&seeds{t: t, db: db, dialect: sqlstore.Postgres}).consumer("billing",
		func(context.Context, *sql.Tx, *consumer.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer billing.Close()
	if err := billing.Process(t.Context(), delivery("order-1", "x")); err != nil {
		// explain refuses consumers that have not run
		t.Fatal(err)
	}
	for range 3 { // each run gets other sessions
		for _, args := range [][]string{
			{"migrate", "up"},
			{"check"},
			{"status"},
			{"explain", "billing", "order-1"},
			{"dead-letters", "list", "--consumer", "billing", "--since", "2h"},
			{"dead-letters", "replay", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "0"},
			{"outbox", "list", "--topic", "charged"},
			{"actions", "list"},
			{"sweep", "--once"},
		} {
			var out bytes.Buffer
			if err := runLine(t.Context(), &out, append(args, "--dsn", line)...); err != nil {
				t.Errorf("%s: %v (%d): %s", args, err, cli.ExitCode(err), out.String())
			}
		}
	}
}
