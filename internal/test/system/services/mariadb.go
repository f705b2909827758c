//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // "mysql" for database/sql
)

// mariadb is MariaDB with the programs of Debian's package; there is no jar.
type mariadb struct{ port int }

// mariadbSettings are also in compose.yaml. Settings that affect durability keep their defaults, which do not lose
// commits.
var mariadbSettings = []string{
	"--max-connections=300",
	"--character-set-server=utf8mb4",
	"--skip-name-resolve",
	"--innodb-buffer-pool-size=64M",
	"--innodb-stats-persistent=OFF", // with it, creating a table takes a third longer
}

func (m mariadb) About() about {
	return about{
		Name: "mariadb", Title: "MariaDB", Env: "TXONCE_MARIADB",
		Address: fmt.Sprintf("root@tcp(127.0.0.1:%d)/", m.port),
	}
}

func (m mariadb) Healthy(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var version string
	return db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
}

func (m mariadb) Needs() []program {
	if m.installed() != "" {
		return nil
	}
	return []program{{"mariadbd", "mariadb-server-core"}, {"mariadb-install-db", "mariadb-server"}}
}

func (m mariadb) Prepare(ctx context.Context, dir string) (process, error) {
	run, err := unprivileged(dir, "mysql")
	if err != nil {
		return process{}, err
	}
	data := filepath.Join(run.dir, "data")
	install := exec.CommandContext(ctx, "mariadb-install-db", "--no-defaults",
		"--auth-root-authentication-method=normal",
		"--skip-test-db", "--datadir="+data)
	install.Dir = run.dir
	install.SysProcAttr = &syscall.SysProcAttr{Credential: run.user}
	if out, err := install.CombinedOutput(); err != nil {
		return process{Outside: run.outside}, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	args := append([]string{
		m.installed(), "--no-defaults", "--datadir=" + data, "--socket=" + filepath.Join(run.dir, "socket"),
		"--pid-file=" + filepath.Join(run.dir, "pid"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(m.port),
	}, mariadbSettings...)
	return process{Args: args, User: run.user, Stop: syscall.SIGTERM, Outside: run.outside}, nil
}

// installed returns the path of the server's program, or "".
func (m mariadb) installed() string {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} { // a user's PATH may lack sbin
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// shellQuoted quotes a value for shells that read .services/env, if necessary.
func shellQuoted(value string) string {
	if strings.ContainsAny(value, "()&;|<>$`\"' \t") {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}
