//go:build unix

package pgxstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

const sharedPostgres = "../../.services/postgres/process.json"

// noPrograms is why there is no ownPostgres where the shared one is a container or the user's own; empty where there is.
func noPrograms() string {
	if _, err := os.Stat(sharedPostgres); err != nil {
		return "the shared server must not lose its write-ahead log, and for one of the test's own the programs are missing that make services-up finds where there is no Docker"
	}
	return ""
}

// ownPostgres runs a server of the test's own, with the programs and settings of the shared one and settings of its own.
func ownPostgres(t testing.TB, settings ...string) (dsn string) {
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
	dir, err := os.MkdirTemp("", "txonce-own-postgres-") // not t.TempDir, whose parents the server's user may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if shared.User != nil {
		if err := os.Chown(dir, int(shared.User.Uid), int(shared.User.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	run := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: shared.User}
		return cmd
	}
	initdb := run(filepath.Join(filepath.Dir(shared.Args[0]), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	args := append([]string{}, shared.Args[1:]...)
	var port int // where it stands in args
	for i := range args {
		switch args[i] {
		case "-D":
			args[i+1] = data
		case "-p":
			port = i + 1
		}
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	start := func() (ended <-chan struct{}) {
		args[port] = freePort(t)
		server, done := run(shared.Args[0], args...), make(chan struct{})
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = server.Wait()
			close(done)
		}()
		t.Cleanup(func() {
			_ = server.Process.Signal(syscall.SIGQUIT)
			<-done
		})
		return done
	}
	ended, starts := start(), 1
	for end := time.After(2 * time.Minute); ; {
		dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", args[port])
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			conn.Close(t.Context())
			return dsn
		}
		select {
		case <-ended: // the port was taken meanwhile
			if starts++; starts > 5 {
				t.Fatalf("the server ends at once: %v", err)
			}
			ended = start()
		case <-time.After(50 * time.Millisecond):
		case <-end:
			t.Fatal(err)
		}
	}
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

// Where a slot is free, and not the second one that its creation needs for a moment, nothing is left behind.
func TestOutboxWALOneFreeSlot(t *testing.T) {
	if reason := noPrograms(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	db := newOutboxDBAt(t, ownPostgres(t, "max_replication_slots=1"), 4)
	store := newStore(t, pgxstore.Config{Pool: db.pool, Outbox: pgxstore.OutboxConfig{Mode: pgxstore.OutboxWAL}})
	if err := store.CreateOutboxSlot(t.Context()); err == nil || !strings.Contains(err.Error(), "two free ones of max_replication_slots") {
		t.Errorf("CreateOutboxSlot = %v; want it to name what is missing", err)
	}
	if left := db.strings(t, `SELECT slot_name FROM pg_replication_slots`); len(left) > 0 {
		t.Errorf("slots %v are left", left)
	}
}

// A slot that falls too far behind is lost: Enqueue refuses from before that moment on, and a relay says what may be lost.
func TestOutboxWALSlotIsOverrun(t *testing.T) {
	if reason := noPrograms(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	dsn := ownPostgres(t, "max_slot_wal_keep_size=1MB", "max_wal_size=1GB", "checkpoint_timeout=1h") // no checkpoint but the test's
	w := newWALTest(t, func(testing.TB) string { return dsn }, pgxstore.OutboxConfig{})
	s := w.hold(w.open(time.Hour))
	w.mustEnqueue("a-1")
	w.settle(s, outbox.Sent, w.lease(s, 1)...)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mustEnqueue("a-2")
	status := func(w *walTest) string {
		return w.db.strings(w, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, w.slot())[0]
	}
	w.db.exec(t, `SELECT pg_logical_emit_message(false, 'traffic', repeat('x', 1000000)) FROM generate_series(1, 20)`)
	w.db.exec(t, `SELECT pg_switch_wal()`)
	if err := w.enqueue(walMessage("b-1")); status(w) != "unreserved" || !errors.Is(err, pgxstore.ErrSlotLost) {
		t.Errorf("the slot is %s, and Enqueue says %v", status(w), err)
	}
	w.until("the slot to be lost", func() bool {
		w.db.exec(t, `CHECKPOINT`)
		return status(w) == "lost"
	})
	w.wantSlotError("lost", true)
	w.repair(true)
}
