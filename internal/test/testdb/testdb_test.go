package testdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/testdb"
)

// A missing server must fail the test and name the command. A skip would let a suite pass without running.
func TestMissingServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short skips instead, which is what this test is about")
	}
	for _, test := range []struct{ name, env, file, want string }{
		{"no file", "", "", "TXONCE_POSTGRES is not set and not in .services/env: run make services-up"},
		{"file without it", "", "TXONCE_KAFKA=127.0.0.1:1\n", "TXONCE_POSTGRES is not set"},
		{"stale file", "", "TXONCE_POSTGRES=postgres://127.0.0.1:1/x\n", "does not answer"},
		{
			"environment goes first", "postgres://127.0.0.1:2/x", "TXONCE_POSTGRES=postgres://127.0.0.1:1/x\n",
			"127.0.0.1:2",
		},
		{"no DSN", "nonsense", "", "TXONCE_POSTGRES: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkout := t.TempDir()
			write(t, filepath.Join(checkout, "go.mod"), "module github.com/txonce/txonce\n")
			if test.file != "" {
				write(t, filepath.Join(checkout, ".services", "env"), test.file)
			}
			t.Chdir(checkout)
			t.Setenv("TXONCE_POSTGRES", test.env)
			got := fatal(t, func(tb testing.TB) { testdb.Postgres(tb) })
			if !strings.Contains(got, test.want) {
				t.Errorf("t.Fatal said %q, want it to contain %q", got, test.want)
			}
		})
	}
}

// recorder is a testing.TB that records calls of Fatal.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%v", args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fatal returns the text that f passes to Fatal, or "".
func fatal(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.said
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
