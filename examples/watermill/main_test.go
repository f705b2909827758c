package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines > 80 {
		t.Errorf("main.go has %d lines, want 80 at the most (%v)", lines, err)
	}
}

// right allows repeated announcements: the subscriber gets one again when its AckDeadline passes.
var right = regexp.MustCompile(`30 messages, 3 attempts failed: 10 orders charged, 0 charged twice, [1-9]\d announced`)

func TestRouter(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	for range 2 {
		cmd, out := self.Recorded(t)
		cmd.Env = append(cmd.Env, "DATABASE_URL="+dsn)
		if err := cmd.Run(); err != nil || !right.MatchString(out.String()) {
			t.Fatalf("%v, want %s in:\n%s", err, right, out)
		}
	}
}

// The README promises that a handler needs at most five changed lines besides imports.
func TestAtMostFiveLines(t *testing.T) {
	read := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "\n)\n") // below the imports
		return strings.Split(body, "\n")
	}
	before := map[string]int{}
	for _, line := range read("before/main.go") {
		before[line]++
	}
	var changed []string
	for _, line := range read("after/main.go") {
		if before[line]--; before[line] < 0 {
			changed = append(changed, line)
		}
	}
	if len(changed) > 5 || len(changed) == 0 {
		t.Errorf("%d lines are new:\n%s", len(changed), strings.Join(changed, "\n"))
	}
}
