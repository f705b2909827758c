//go:build unix

package main

import (
	"context"
	"embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// postgres is PostgreSQL of one major version. It uses the programs installed on the machine if they have that version,
// and otherwise those of a Maven jar, which is smaller than Debian's package, has the exact version on every
// distribution, and does not start a cluster at port 5432 as the package does.
type postgres struct {
	name, env string
	major     int
	port      int
}

// postgresSettings are also in compose.yaml. fsync stays on, because the tests rely on it.
var postgresSettings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"max_connections=500",
	"max_prepared_transactions=10",
}

//go:embed *.pom.xml
var poms embed.FS

func (p postgres) About() about {
	return about{
		Name:    p.name,
		Title:   fmt.Sprintf("PostgreSQL %d", p.major),
		Env:     p.env,
		Address: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port),
	}
}

// Healthy checks the version, because with another version the tests would prove something else.
func (p postgres) Healthy(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return err
	}
	if version/10000 != p.major {
		return fmt.Errorf("it is PostgreSQL %d, not %d", version/10000, p.major)
	}
	return nil
}

func (p postgres) Needs() []program {
	if p.installed() != "" {
		return nil
	}
	return append(forMaven, program{"xz", "xz-utils"})
}

func (p postgres) Prepare(ctx context.Context, dir string) (process, error) {
	run, err := unprivileged(dir)
	if err != nil {
		return process{}, err
	}
	failed := func(err error) (process, error) { return process{Outside: run.outside}, err }
	programs := p.installed()
	if programs == "" {
		if programs, err = p.unpack(ctx, run.dir); err != nil {
			return failed(err)
		}
	}
	data := filepath.Join(run.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(programs, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions")
	initdb.Dir = run.dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: run.user}
	if out, err := initdb.CombinedOutput(); err != nil {
		return failed(fmt.Errorf("initdb: %w\n%s", err, out))
	}
	args := []string{filepath.Join(programs, "postgres"), "-D", data, "-p", strconv.Itoa(p.port)}
	for _, setting := range postgresSettings {
		args = append(args, "-c", setting)
	}
	// SIGINT is PostgreSQL's fast shutdown. On SIGTERM it would wait for its clients.
	return process{Args: args, User: run.user, Stop: syscall.SIGINT, Outside: run.outside}, nil
}

// installed returns the folder with this major version's programs, or "".
func (p postgres) installed() string {
	major := strconv.Itoa(p.major)
	candidates := []string{
		"/usr/lib/postgresql/" + major + "/bin",          // Debian, Ubuntu
		"/usr/pgsql-" + major + "/bin",                   // Red Hat
		"/opt/homebrew/opt/postgresql@" + major + "/bin", // Homebrew
		"/usr/local/opt/postgresql@" + major + "/bin",
	}
	if onPath, err := exec.LookPath("postgres"); err == nil {
		candidates = append(candidates, filepath.Dir(onPath))
	}
	for _, dir := range candidates {
		out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
		if err == nil && strings.HasPrefix(string(out), "postgres (PostgreSQL) "+major+".") {
			return dir
		}
	}
	return ""
}

// unpack extracts the programs of the Maven jar below dir, where the server's user can run them.
func (p postgres) unpack(ctx context.Context, dir string) (programs string, err error) {
	jars, err := fetchJars(ctx, p.name)
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(jars, "embedded-postgres-binaries-*.jar"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s should hold one jar of PostgreSQL's programs: %v %w", jars, found, err)
	}
	archive, err := extractOne(found[0], ".txz", dir)
	if err != nil {
		return "", err
	}
	defer os.Remove(archive)
	home := filepath.Join(dir, "programs")
	if err := os.Mkdir(home, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xJf", archive, "-C", home).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w\n%s", err, out)
	}
	return filepath.Join(home, "bin"), nil
}

// portOf returns the port in an address such as 127.0.0.1:1, postgres://postgres@127.0.0.1:1/postgres or
// root@tcp(127.0.0.1:1)/.
func portOf(address string) string {
	if _, rest, ok := strings.Cut(address, "@"); ok {
		address, _, _ = strings.Cut(rest, "/")
	}
	address = strings.TrimSuffix(strings.TrimPrefix(address, "tcp("), ")")
	_, port, _ := net.SplitHostPort(address)
	return port
}
