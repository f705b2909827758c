package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/testdb"
)

// TestMain lets this binary be the command that it tests.
func TestMain(m *testing.M) {
	if os.Getenv("KAFKA_WORKER_IS_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines > 80 {
		t.Errorf("main.go has %d lines, want 80 at the most (%v)", lines, err)
	}
}

// right: a group that is rebalanced gets some deliveries again.
var right = regexp.MustCompile(`10 orders, 10 charged, 0 charged twice, 10 announced, ([5-9]|\d\d) deliveries were duplicates`)

// TestWorker runs it twice: the second run finds what the first has left.
func TestWorker(t *testing.T) {
	dsn, brokers := testdb.Schema(t, testdb.Postgres(t)), testdb.Kafka(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "KAFKA_WORKER_IS_COMMAND=1", "DATABASE_URL="+dsn, "KAFKA_BROKERS="+strings.Join(brokers, ","), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil || !right.Match(out) {
			t.Fatalf("%v, want %s in:\n%s", err, right, out)
		}
	}
}
