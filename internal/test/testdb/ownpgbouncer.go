package testdb

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/dsn"
)

// StartPgBouncer starts a PgBouncer for one test in front of the server of direct. It is in transaction mode, unless
// settings, which are additional lines of its configuration, change that. It returns the DSN through it. end kills it;
// the end of the test does too.
func StartPgBouncer(t testing.TB, direct string, settings ...string) (pooled string, end func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PgBouncer; -short runs only what needs nothing but Go")
	}
	program := "/usr/sbin/pgbouncer" // only in root's PATH
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("pgbouncer"); err != nil {
			t.Fatal("the shared PgBouncer must not be reconfigured, and for one of the test's own it is not installed: apt-get install pgbouncer")
		}
	}
	server, err := dsn.ParsePostgres(direct)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "txonce-pgbouncer-") // its user may not be able to enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := FreePort(t)
	ini := filepath.Join(dir, "pgbouncer.ini")
	lines := []string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s user=%s", server.Host, server.Port, server.User),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction", "server_login_retry = 1",
	}
	if err := os.WriteFile(ini, []byte(strings.Join(append(append(lines, settings...), ""), "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", ini)
	cmd.Dir = "/"
	if os.Getuid() == 0 { // PgBouncer refuses to run as root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody(t)}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	awaitPort(t, port)
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", server.User, port, server.Database), end
}

func nobody(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func awaitPort(t testing.TB, port int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			conn.Close()
			return
		}
		if time.Since(began) > setUpWithin {
			t.Fatalf("PgBouncer does not listen: %v", err)
		}
	}
}
