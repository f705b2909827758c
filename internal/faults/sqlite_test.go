package faults_test

import (
	"testing"

	"github.com/txonce/txonce/internal/faults"
)

func TestSQLite(t *testing.T) {
	for _, test := range []struct {
		name string
		code int
		text string
		want bool
	}{
		{"BUSY", 5, "", true},
		{"BUSY_SNAPSHOT", 517, "", true},
		{"LOCKED_SHAREDCACHE", 262, "", true},
		{"NOMEM", 7, "", true},
		{"READONLY_DBMOVED", 1032, "", true},
		{"INTERRUPT", 9, "", true},
		{"IOERR_FSYNC", 1034, "", true},
		{"CORRUPT", 11, "", true},
		{"FULL", 13, "", true},
		{"CANTOPEN", 14, "", true},
		{"no table", 1, "SQL logic error: no such table: ledger (1)", true},
		{"no column", 1, "SQL logic error: table ledger has no column named cents (1)", true},
		{"syntax", 1, `SQL logic error: near "INTO": syntax error (1)`, true},
		{"a search that a user typed", 1, `SQL logic error: fts5: syntax error near "x" (1)`, false},
		{"data", 1, "SQL logic error: malformed JSON (1)", false},
		{"CONSTRAINT_UNIQUE", 2067, "", false},
		{"TOOBIG", 18, "", false},
		{"MISMATCH", 20, "", false},
	} {
		if got := faults.SQLite.Retryable(faults.OfSQLite(test.code, test.text)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
