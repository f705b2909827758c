//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain makes the test binary also act as `services keep`.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "keep" {
		if err := keep(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sleeper is a server that only sleeps. A shell command tells whether it is healthy.
type sleeper struct {
	address string
	command string
	ports   []string

	optional bool
}

func (s sleeper) About() about {
	return about{
		Name: "sleeper", Title: "Sleeper", Env: "TXONCE_SLEEPER", Address: s.address, Ports: s.ports,
		Optional: s.optional,
	}
}

func (s sleeper) Healthy(context.Context, string) error {
	_, err := os.Stat(filepath.Join(state, "sleeper", "awake"))
	return err
}

func (s sleeper) Needs() []program { return nil }

func (s sleeper) Prepare(_ context.Context, dir string) (process, error) {
	outside, err := os.MkdirTemp(filepath.Dir(filepath.Dir(dir)), "outside")
	script := fmt.Sprintf("cd %q; %s", dir, s.command)
	return process{Args: []string{"sh", "-c", script}, Stop: syscall.SIGTERM, Outside: outside}, err
}

func TestLifeOfAServer(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, s server)
	}{
		{"services-down", func(t *testing.T, s server) { must(t, down(t.Context(), []server{s})) }},
		{"checkout deleted", func(t *testing.T, _ server) { must(t, os.RemoveAll(state)) }},
		{"keeper killed", func(t *testing.T, s server) {
			keeper, _ := ids(t)
			must(t, syscall.Kill(keeper, syscall.SIGKILL))
			eventually(t, "the keeper is gone", func() bool { return gone(keeper) })
			must(t, down(t.Context(), []server{s}))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			s := sleeper{address: freeAddress(t), command: "touch awake; exec sleep 1000"}
			must(t, startOne(t.Context(), s, startNative))
			keeper, server := ids(t)
			t.Cleanup(func() { syscall.Kill(server, syscall.SIGKILL) })

			test.end(t, s)

			eventually(t, "keeper and server are gone", func() bool { return gone(keeper) && gone(server) })
			eventually(t, "folders are gone", func() bool {
				left, err := filepath.Glob("outside*")
				_, errState := os.Stat(filepath.Join(state, "sleeper"))
				return err == nil && len(left) == 0 && errors.Is(errState, os.ErrNotExist)
			})
		})
	}
}

func TestServerThatEndsAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	s := sleeper{address: freeAddress(t), command: "echo out of cheese; exit 3"}
	err := startOne(t.Context(), s, startNative)
	if err == nil || !strings.Contains(err.Error(), "out of cheese") || !strings.Contains(err.Error(),
		"exit status 3") {
		t.Errorf("startOne = %v, want the exit status and the end of the log", err)
	}
	if _, err := os.Stat(filepath.Join(state, "sleeper")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	t.Chdir(t.TempDir())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for name, s := range map[string]sleeper{
		"its own port":    {address: listener.Addr().String()},
		"a port it needs": {address: freeAddress(t), ports: []string{port}},
	} {
		began := time.Now()
		_, err := start(t.Context(), []server{s, sleeper{address: freeAddress(t), command: "touch started; exec sleep 1000"}}, false)
		for _, want := range []string{
			"port " + port, fmt.Sprintf("process %d (", os.Getpid()), "TXONCE_SLEEPER",
			"not a healthy Sleeper",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: start = %v, want %q in it", name, err, want)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: it took %v to say so", name, took)
		}
		if _, err := os.Stat(filepath.Join(state, "sleeper")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: another server was started all the same: %v", name, err)
		}
	}
}

// Without an optional server up succeeds, unless it insists. The tests then find that it is absent, and the next up
// tries again.
func TestOptionalServer(t *testing.T) {
	t.Chdir(t.TempDir())
	s := sleeper{address: freeAddress(t), command: "exit 1", optional: true}
	missing, err := start(t.Context(), []server{s}, false)
	if err != nil || len(missing) != 1 {
		t.Fatalf("start = %v, %v", missing, err)
	}
	must(t, writeEnv(missing, missing))
	if text, err := os.ReadFile(filepath.Join(state, "env")); err != nil || string(text) != "TXONCE_SLEEPER="+
		noServer+"\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
	t.Setenv("TXONCE_SLEEPER", noServer)
	if address, given := addressOf(s); given || address != s.address {
		t.Errorf("the next up takes %s for an address", address)
	}
	if _, err := start(t.Context(), []server{s}, true); err == nil {
		t.Error("it does not insist")
	}
}

func TestEnv(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TXONCE_POSTGRES18", "postgres://my/own")
	for _, k := range known {
		if k.About().Env != "TXONCE_POSTGRES18" {
			t.Setenv(k.About().Env, "")
		}
	}
	read := func() string {
		text, err := os.ReadFile(filepath.Join(state, "env"))
		if errors.Is(err, os.ErrNotExist) {
			return "no file"
		}
		must(t, err)
		return string(text)
	}
	kafka, err := choose([]string{"kafka"})
	must(t, err)
	both, err := choose([]string{"postgres", "postgres18"})
	must(t, err)

	must(t, writeEnv(kafka, nil))
	must(t, writeEnv(both, nil))
	want := "TXONCE_KAFKA=127.0.0.1:21492\nTXONCE_POSTGRES18=postgres://my/own\nTXONCE_POSTGRES=postgres://postgres@127.0.0.1:21415/postgres?sslmode=disable\n"
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("after up of kafka and then both, one of which the environment names (-want +got):\n%s", diff)
	}
	must(t, down(t.Context(), kafka))
	if got := read(); strings.Contains(got, "KAFKA") || !strings.Contains(got, "TXONCE_POSTGRES=") {
		t.Errorf("after down of kafka: %s", got)
	}
	must(t, down(t.Context(), known))
	if got := read(); got != "no file" {
		t.Errorf("after down of all: %s", got)
	}
}

func TestUnknownName(t *testing.T) {
	_, err := choose([]string{"kafka", "kafak"})
	if err == nil || !strings.Contains(err.Error(), `no service "kafak"; there are: `+
		strings.Join(namesOf(known), " ")) {
		t.Errorf("choose = %v", err)
	}
}

// ids returns the process ids that the keeper writes after it has started the server. The server may be healthy
// earlier.
func ids(t *testing.T) (keeper, server int) {
	t.Helper()
	eventually(t, "the ids are written", func() bool {
		text, err := os.ReadFile(filepath.Join(state, "sleeper", idsFile))
		must(t, err)
		n, _ := fmt.Sscan(string(text), &keeper, &server)
		return n == 2
	})
	return keeper, server
}

func gone(pid int) bool {
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMountedForPrograms(t *testing.T) {
	const disk, shm = "/dev/vda / ext4 rw 0 0\n", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n"
	for name, tc := range map[string]struct {
		mounts string
		want   bool
	}{
		"in memory":           {disk + shm, true},
		"none":                {disk, false},
		"another file system": {"/dev/vdb /dev/shm ext4 rw 0 0\n", false},
		"no programs":         {"tmpfs /dev/shm tmpfs rw,noexec,nodev 0 0\n", false},
		"hidden by a later":   {shm + "/dev/vdb /dev/shm ext4 rw 0 0\n", false},
	} {
		if got := mountedForPrograms(tc.mounts, "/dev/shm"); got != tc.want {
			t.Errorf("%s: mountedForPrograms = %v, want %v", name, got, tc.want)
		}
	}
}
