package testdb

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// OwnClock is the clock of a server of the test's own: libfaketime shows the server another time.
type OwnClock struct {
	file string
}

// StartPostgresWithClock is StartPostgres, with a clock that the test sets.
func StartPostgresWithClock(t testing.TB, settings ...string) (*OwnPostgres, *OwnClock) {
	t.Helper()
	p := StartPostgres(t, settings...)
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		t.Fatal("libfaketime is missing, which sets the clock of a server. Install it with: apt-get install -y --no-install-recommends faketime")
	}
	c := &OwnClock{file: filepath.Join(p.dir, "clock")}
	c.Set(t, 0)
	p.server.end("INT")
	p.env = []string{
		"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, c
}

// Set makes the server's clock differ from the real one by offset. It changes while the server runs.
func (c *OwnClock) Set(t testing.TB, offset time.Duration) {
	t.Helper()
	text := fmt.Sprintf("%+d", int64(offset/time.Second))
	next := c.file + ".next"
	err := os.WriteFile(next, []byte(text+"\n"), 0o644)
	if err == nil {
		err = os.Rename(next, c.file) // the server never reads half of it
	}
	if err != nil {
		t.Fatal(err)
	}
}
