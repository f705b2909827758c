package main

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

func TestJoin(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	for range 2 {
		cmd, out := self.Recorded(t)
		cmd.Env = append(cmd.Env, "DATABASE_URL="+dsn)
		const right = "20 messages: 10 orders charged, 0 charged twice\n"
		if err := cmd.Run(); err != nil || !strings.HasSuffix(out.String(), right) {
			t.Fatalf("%v, want %s in:\n%s", err, right, out)
		}
	}
}
