package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The command line works through a pooler that gives each transaction another session, without parameters in the DSN.
func TestPooler(t *testing.T) {
	t.Parallel()
	line, _ := testdb.PgBouncer(t)
	line = strings.ReplaceAll(line, "default_query_exec_mode=exec", "")
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
