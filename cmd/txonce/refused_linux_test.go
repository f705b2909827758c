package main

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// Tables that a newer release has made, and that do not work with this program, are neither read nor changed: what this
// program says about them may be wrong.
func TestTablesOfANewerRelease(t *testing.T) {
	t.Parallel()
	s := parked(t)
	s.exec(t, `UPDATE txonce_schema SET version = 99, works_with = 99 WHERE version = 1`)
	for _, tc := range []struct {
		code int
		args []string
	}{
		{cli.ExitRefused, []string{"status"}},
		{cli.ExitRefused, []string{"explain", "billing", "order-1"}},
		{cli.ExitRefused, []string{"dead-letters", "list"}},
		{cli.ExitRefused, []string{"dead-letters", "replay", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "1"}},
		{cli.ExitRefused, []string{"dead-letters", "discard", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "1"}},
		{cli.ExitRefused, []string{"sweep", "--once"}},
		{cli.ExitRefused, []string{"migrate", "up"}},
		{cli.ExitFine, []string{"migrate", "status"}},
		{cli.ExitFinding, []string{"check"}},
	} {
		var out bytes.Buffer
		if err := runLine(t.Context(), &out, append(tc.args, "--dsn", s.line)...); cli.ExitCode(err) != tc.code {
			t.Errorf("%s: %v (%d), want %d", tc.args, err, cli.ExitCode(err), tc.code)
		}
	}
	if letters(t, s) != 1 {
		t.Errorf("%d letters", letters(t, s))
	}
}

// A standby answers questions, and refuses changes. It can be reached.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	line := testdb.Schema(t, testdb.Postgres(t))
	db, err := sql.Open("pgx", line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		code int
		args []string
	}{
		{cli.ExitFine, []string{"status"}},
		{cli.ExitFine, []string{"dead-letters", "list"}},
		{cli.ExitRefused, []string{"explain", "billing", "order-1"}},
		{cli.ExitRefused, []string{"sweep", "--once"}},
	} {
		var out bytes.Buffer
		if err := runLine(t.Context(), &out, append(tc.args, "--dsn",
			line+"&default_transaction_read_only=on")...); cli.ExitCode(err) != tc.code {
			t.Errorf("%s: %v (%d), want %d", tc.args, err, cli.ExitCode(err), tc.code)
		}
	}
}

// Output that cannot be written is an error, also of commands that use no database.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"monitoring", "rules"}, {"plan", "--rate", "10"}, {"completion", "bash"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), envRole+"=txonce")
		cmd.Stdout = full
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitUnreachable {
			t.Errorf("%s: %v, want exit status %d", args, err, cli.ExitUnreachable)
		}
		_ = full.Close()
	}
}
