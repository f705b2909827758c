//go:build unix

package pgxstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const sharedPostgres = "../../.services/postgres/process.json"

// noPrograms says why ownPostgres is unavailable, as when the shared server is a container or the user's own; empty if
// ownPostgres is available.
func noPrograms() string {
	if _, err := os.Stat(sharedPostgres); err != nil {
		return "this test needs a server of its own, because it kills the server or deletes its write-ahead log; the programs to start one are missing: services-up finds them only where there is no Docker"
	}
	return ""
}

// ownCluster is the data of a server that belongs to one test. The server runs the programs of the shared one, with its
// settings and more.
type ownCluster struct {
	program string
	user    *syscall.Credential
	dir     string // the directory with the data
	args    []string
}

func newOwnCluster(t testing.TB, settings ...string) *ownCluster {
	t.Helper()
	var shared struct {
		Args []string
		User *syscall.Credential
	}
	text, err := os.ReadFile(sharedPostgres)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &shared); err != nil {
		t.Fatal(err)
	}
	c := &ownCluster{program: shared.Args[0], user: shared.User, args: slices.Clone(shared.Args[1:])}
	c.dir = c.newDir(t)
	for _, setting := range settings {
		c.args = append(c.args, "-c", setting)
	}
	initdb := c.command(filepath.Join(filepath.Dir(c.program), "initdb"), "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return c
}

// newDir does not use t.TempDir, because the server's user may not enter its parents.
func (c *ownCluster) newDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "txonce-own-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if c.user != nil {
		if err := os.Chown(dir, int(c.user.Uid), int(c.user.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *ownCluster) data() string { return filepath.Join(c.dir, "data") }

func (c *ownCluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.user}
	return cmd
}

// copy copies a cluster that is not running.
func (c *ownCluster) copy(t testing.TB) *ownCluster {
	t.Helper()
	other := *c
	other.dir = other.newDir(t)
	if out, err := other.command("cp", "-R", c.data(), other.data()).CombinedOutput(); err != nil {
		t.Fatalf("copy a cluster: %v\n%s", err, out)
	}
	return &other
}

// follow makes the cluster a standby of the server that it was copied from.
func (c *ownCluster) follow(t testing.TB, primary *ownServer) {
	t.Helper()
	conninfo := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%s user=postgres sslmode=disable'\n", primary.port)
	for _, step := range []*exec.Cmd{
		c.command("sh", "-c", `printf %s "$1" >> "$2"`, "-", conninfo, filepath.Join(c.data(), "postgresql.auto.conf")),
		c.command("touch", filepath.Join(c.data(), "standby.signal")),
	} {
		if out, err := step.CombinedOutput(); err != nil {
			t.Fatalf("make a standby: %v\n%s", err, out)
		}
	}
}

// ownServer is a server that runs on an ownCluster.
type ownServer struct {
	port, dsn string
	kill      func() // ends the server like a crash; returns when its processes are gone
}

// start starts the server and returns when it answers, also if it is a standby.
func (c *ownCluster) start(t testing.TB) *ownServer {
	t.Helper()
	args := slices.Clone(c.args)
	var port int // the index of the port in args
	for i := range args {
		switch args[i] {
		case "-D":
			args[i+1] = c.data()
		case "-p":
			port = i + 1
		}
	}
	run := func() (kill func(), ended <-chan struct{}) {
		args[port] = freePort(t)
		server, done := c.command(c.program, args...), make(chan struct{})
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = server.Wait()
			close(done)
		}()
		kill = func() {
			_ = server.Process.Signal(syscall.SIGQUIT)
			<-done
		}
		t.Cleanup(kill)
		return kill, done
	}
	kill, ended := run()
	for end, starts := time.After(2*time.Minute), 1; ; {
		s := &ownServer{args[port], fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", args[port]), kill}
		conn, err := pgx.Connect(t.Context(), s.dsn)
		if err == nil {
			conn.Close(context.WithoutCancel(t.Context()))
			return s
		}
		select {
		case <-ended: // another program has taken the port
			if starts++; starts > 5 {
				t.Fatalf("the server ends at once: %v", err)
			}
			kill, ended = run()
		case <-time.After(50 * time.Millisecond):
		case <-end:
			t.Fatal(err)
		}
	}
}

// ownPostgres runs a server for this test until the test ends.
func ownPostgres(t testing.TB, settings ...string) (dsn string) {
	t.Helper()
	return newOwnCluster(t, settings...).start(t).dsn
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
