//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// mysql is MySQL: the program on this machine, or that of Debian's next release with the libraries it was built for
// (mysql_debian.go).
type mysql struct{ port int }

// mysqlSettings are also in compose.yaml. Settings that affect durability keep their defaults, which do not lose
// commits.
var mysqlSettings = []string{
	"--max-connections=300",
	"--skip-log-bin",
	"--mysqlx=OFF",
	"--innodb-buffer-pool-size=64M",
	"--innodb-stats-persistent=OFF",                  // as for MariaDB
	"--performance-schema-instrument=%=OFF",          // the tables with locks, which txonce reads, need no instruments
	"--performance-schema-instrument=transaction=ON", // as it is by default: the ages of transactions are read there
	"--performance-schema-digests-size=0",
}

func (m mysql) About() about {
	return about{
		Name: "mysql", Title: "MySQL", Env: "TXONCE_MYSQL", Optional: true,
		Address: fmt.Sprintf("root@tcp(127.0.0.1:%d)/", m.port),
	}
}

// Healthy checks that it is not MariaDB, because then the tests would prove something else.
func (m mysql) Healthy(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	if strings.Contains(version, "MariaDB") {
		return fmt.Errorf("it is %s, not MySQL", version)
	}
	return nil
}

// Needs returns nothing: whatever is missing makes Prepare fail, and a machine may go without MySQL.
func (m mysql) Needs() []program { return nil }

func (m mysql) Prepare(ctx context.Context, dir string) (process, error) {
	program, err := m.program(ctx)
	if err != nil {
		return process{}, err
	}
	home, outside, err := dataFolder(dir, "mysql")
	if err != nil {
		return process{}, err
	}
	args := append(program, "--datadir="+filepath.Join(home, "data"))
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // another user could not read a cache in root's home
	}
	initialize := exec.CommandContext(ctx, args[0], append(args[1:len(args):len(args)], "--initialize-insecure")...)
	if out, err := initialize.CombinedOutput(); err != nil {
		return process{Outside: outside}, fmt.Errorf("mysqld --initialize-insecure: %w\n%s", err, out)
	}
	args = append(args, "--socket="+filepath.Join(home, "socket"), "--pid-file="+filepath.Join(home, "pid"),
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(m.port), "--secure-file-priv=")
	return process{Args: append(args, mysqlSettings...), Stop: syscall.SIGTERM, Outside: outside}, nil
}

// program returns the words that start mysqld without a file of settings.
func (m mysql) program(ctx context.Context) ([]string, error) {
	for _, name := range []string{"mysqld", "/usr/sbin/mysqld"} { // a user's PATH may lack sbin
		out, err := exec.CommandContext(ctx, name, "--no-defaults", "--version").Output()
		if err == nil && !strings.Contains(string(out), "MariaDB") {
			return []string{name, "--no-defaults"}, nil
		}
	}
	root, err := unpackMySQL(ctx)
	if err != nil {
		return nil, err
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*-linux-gnu*", "ld-linux*.so.*"))
	if err != nil || len(loaders) == 0 {
		return nil, errors.Join(fmt.Errorf("there is no loader in %s", root), err)
	}
	return []string{
		loaders[0], "--library-path", filepath.Dir(loaders[0]), filepath.Join(root, "usr", "sbin", "mysqld"),
		"--no-defaults",
		"--lc-messages-dir=" + filepath.Join(root, "usr", "share", "mysql"),
	}, nil
}
