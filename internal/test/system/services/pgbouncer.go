//go:build unix

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// pgbouncer is a PgBouncer in transaction mode in front of these services' PostgreSQL 15. It connects to PostgreSQL
// when a client does, so the two may start concurrently.
type pgbouncer struct{ port int }

//go:embed pgbouncer.ini
var pgbouncerINI string

//go:embed pgbouncer.users.txt
var pgbouncerUsers string

func (p pgbouncer) About() about {
	return about{
		Name:    "pgbouncer",
		Title:   "PgBouncer",
		Env:     "TXONCE_PGBOUNCER",
		Address: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port),
	}
}

// Healthy queries the server behind the pooler, and checks the pooler's mode, because in session mode the tests would
// prove nothing.
func (p pgbouncer) Healthy(ctx context.Context, dsn string) error {
	return errors.Join(p.ask(ctx, dsn, "postgres", "SELECT 1"), p.ask(ctx, dsn, "pgbouncer", "SHOW CONFIG"))
}

func (p pgbouncer) ask(ctx context.Context, dsn, database, question string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	cfg.Database = database
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // the only one that the console supports
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	answers, err := conn.PgConn().Exec(ctx, question).ReadAll()
	if err != nil || database != "pgbouncer" {
		return err
	}
	for _, row := range answers[0].Rows {
		if string(row[0]) == "pool_mode" && string(row[1]) != "transaction" {
			return fmt.Errorf("its pool_mode is %s, not transaction", row[1])
		}
	}
	return nil
}

func (p pgbouncer) Needs() []program {
	if p.installed() != "pgbouncer" {
		return nil
	}
	return []program{{"pgbouncer", "pgbouncer"}}
}

// installed returns the path of the program or "". Debian installs it where only root's PATH leads.
func (p pgbouncer) installed() string {
	const debian = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return "pgbouncer"
}

func (p pgbouncer) Prepare(_ context.Context, dir string) (process, error) {
	run, err := unprivileged(dir)
	if err != nil {
		return process{}, err
	}
	ini, users := filepath.Join(run.dir, "pgbouncer.ini"), filepath.Join(run.dir, "users.txt")
	err = errors.Join(
		os.WriteFile(ini, []byte(strings.Replace(pgbouncerINI, "/etc/pgbouncer/users.txt", users, 1)), 0o644),
		os.WriteFile(users, []byte(pgbouncerUsers), 0o644),
	)
	if err != nil {
		return process{Outside: run.outside}, err
	}
	// SIGTERM is its immediate shutdown. On SIGINT it would wait for its clients.
	return process{Args: []string{p.installed(), ini}, User: run.user, Stop: syscall.SIGTERM, Outside: run.outside}, nil
}
