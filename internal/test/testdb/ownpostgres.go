package testdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// OwnPostgres is a PostgreSQL 15 for one test, which may kill and restart it.
type OwnPostgres struct {
	DSN  string // of a superuser
	Port int

	settings []string
	env      []string // of the server's programs, besides those of this process
	programs string   // the folder with the server's programs
	dir      string
	user     *syscall.Credential // nil: the user of this process
	server   ownServer
	release  func() // of the port
}

// postgresPrograms returns the folder with the shared server's programs or with installed ones, and the user to run
// them.
func postgresPrograms() (dir string, as *syscall.Credential, err error) {
	if root, err := Root(); err == nil {
		var shared struct {
			Args []string
			User *syscall.Credential
		}
		text, err := os.ReadFile(filepath.Join(root, ".services", "postgres", "process.json"))
		if err == nil && json.Unmarshal(text, &shared) == nil && len(shared.Args) > 0 {
			return filepath.Dir(shared.Args[0]), shared.User, nil
		}
	}
	for _, dir := range []string{
		"/usr/lib/postgresql/15/bin", "/usr/pgsql-15/bin",
		"/opt/homebrew/opt/postgresql@15/bin", "/usr/local/opt/postgresql@15/bin",
	} {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		if os.Getuid() != 0 {
			return dir, nil, nil
		}
		as, err = credential("postgres") // the server refuses to run as root
		return dir, as, err
	}
	return "", nil, errors.New("no programs of PostgreSQL 15 are installed")
}

// credential is that of the user of this name.
func credential(name string) (*syscall.Credential, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(found.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(found.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// NoOwnPostgres returns why StartPostgres would fail, or "". One that runs in a container cannot be started this way.
func NoOwnPostgres() string {
	if _, _, err := postgresPrograms(); err != nil {
		return "the shared PostgreSQL must not be killed, and a server of the test's own needs its programs: " +
			err.Error()
	}
	return ""
}

// StartPostgres starts a server with these settings, such as "wal_level=logical". It ends with the test.
func StartPostgres(t testing.TB, settings ...string) *OwnPostgres {
	t.Helper()
	return startOwn(t, func() (*OwnPostgres, error) { return NewPostgres(t.Context(), settings...) })
}

// StartStandby starts a standby of p, with the same settings. It ends with the test.
func (p *OwnPostgres) StartStandby(t testing.TB) *OwnPostgres {
	t.Helper()
	return startOwn(t, func() (*OwnPostgres, error) {
		return newPostgres(t.Context(), p.settings, "pg_basebackup", "-d", p.DSN, "--write-recovery-conf",
			"--checkpoint=fast", "--no-sync")
	})
}

// NewStandby is StartStandby for a program that is not a test. The standby connects to port, where p or a proxy listens.
// The caller ends it with Close.
func (p *OwnPostgres) NewStandby(ctx context.Context, port int) (*OwnPostgres, error) {
	settings := slices.Concat(p.settings,
		[]string{fmt.Sprintf("primary_conninfo=host=127.0.0.1 port=%d user=postgres", port)})
	return newPostgres(ctx, settings, "pg_basebackup", "-d", p.DSN, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
}

// NewBackup starts a server with what p has committed by now, as if a backup was restored: it has the same timeline.
// The caller ends it with Close.
func (p *OwnPostgres) NewBackup(ctx context.Context) (*OwnPostgres, error) {
	return newPostgres(ctx, p.settings, "pg_basebackup", "-d", p.DSN, "--checkpoint=fast", "--no-sync")
}

// Promote makes a standby a primary, with what it has received.
func (p *OwnPostgres) Promote(ctx context.Context) error {
	conn, err := connect(ctx, p.DSN)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch done, err := conn.value(ctx, `SELECT pg_promote(true, 60)`); {
	case err != nil:
		return err
	case done != "true":
		return errors.New("own PostgreSQL: the standby was not promoted within 60 s")
	}
	return nil
}

func startOwn(t testing.TB, start func() (*OwnPostgres, error)) *OwnPostgres {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL; -short runs only what needs nothing but Go")
	}
	p, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// NewPostgres is StartPostgres for a program that is not a test. The caller ends the server with Close.
func NewPostgres(ctx context.Context, settings ...string) (*OwnPostgres, error) {
	return newPostgres(ctx, settings, "initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale",
		"--no-instructions", "--no-sync")
}

// newPostgres creates the data with this program, and starts the server.
func newPostgres(ctx context.Context, settings []string, program string, args ...string) (*OwnPostgres, error) {
	programs, as, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	port, release, err := reservePort()
	if err != nil {
		return nil, err
	}
	// The server's user may not be able to enter the parents of a test's own folder.
	dir, err := os.MkdirTemp("", "txonce-own-postgres-")
	if err != nil {
		release()
		return nil, err
	}
	p := &OwnPostgres{
		Port: port, settings: settings, programs: programs, dir: dir, user: as, release: release,
	}
	p.DSN = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.Port)
	if err := p.create(ctx, program, args); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *OwnPostgres) create(ctx context.Context, program string, args []string) error {
	if p.user != nil {
		if err := os.Chown(p.dir, int(p.user.Uid), int(p.user.Gid)); err != nil {
			return err
		}
	}
	if out, err := p.command(filepath.Join(p.programs, program),
		append(args, "-D", p.data())...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return p.Start(ctx)
}

// Close ends the server and removes its data.
func (p *OwnPostgres) Close() {
	p.server.end("QUIT")
	_ = os.RemoveAll(p.dir)
	p.release()
}

func (p *OwnPostgres) data() string { return filepath.Join(p.dir, "data") }

func (p *OwnPostgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = p.dir
	if len(p.env) > 0 {
		cmd.Env = append(os.Environ(), p.env...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user}
	return cmd
}

// Start starts it again after Kill, with its data and address, and returns when it answers.
func (p *OwnPostgres) Start(ctx context.Context) error {
	args := []string{
		filepath.Join(p.programs, "postgres"), "-D", p.data(), "-p", strconv.Itoa(p.Port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
	}
	for _, setting := range p.settings {
		args = append(args, "-c", setting)
	}
	return p.server.start(ctx, p.command, args,
		func(ctx context.Context) error {
			conn, err := connect(ctx, p.DSN)
			if err != nil {
				return err
			}
			return conn.Close()
		})
}

// Kill ends it with SIGKILL.
func (p *OwnPostgres) Kill() { p.server.end("KILL") }
