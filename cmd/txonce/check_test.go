package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// fault is something that check must find.
type fault struct {
	name  string
	plant func(t *testing.T, s *planted)
	check string // the name of the check that finds it
	level string
	says  string
}

// planted is the database of one fault.
type planted struct {
	*seeds
	line, driver string   // DSNs
	args         []string // more arguments of check
}

func (p *planted) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := p.db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// param adds a parameter to the DSN of the command line.
func (p *planted) param(name, value string) {
	separator := "?"
	if strings.Contains(p.line, "?") {
		separator = "&"
	}
	p.line += separator + name + "=" + url.QueryEscape(value)
}

func statements(q ...string) func(*testing.T, *planted) {
	return func(t *testing.T, p *planted) { p.exec(t, q...) }
}

func parameter(name, value string) func(*testing.T, *planted) {
	return func(_ *testing.T, p *planted) { p.param(name, value) }
}

func (p *planted) deliver(t *testing.T, handle consumer.Handler[*sql.Tx], msgs ...*consumer.Message) {
	t.Helper()
	c, err := p.consumer("billing", handle)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, m := range msgs {
		if err := c.Process(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// receive makes billing a consumer of source.
func (p *planted) receive(t *testing.T, source string) {
	t.Helper()
	c, err := p.consumer("billing", func(context.Context, *sql.Tx, *consumer.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.AddSource(source)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (p *planted) enqueue(t *testing.T, topic string) *outbox.Message {
	t.Helper()
	store, err := p.store()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := p.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := outbox.Message{ID: "1", Topic: topic, Payload: []byte("x")}
	if err := errors.Join(store.Enqueue(t.Context(), tx, m), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	return &m
}

// settle leases the only message and ends its lease with verdict.
func (p *planted) settle(t *testing.T, verdict driver.Verdict) {
	t.Helper()
	store, err := p.store()
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.Open(t.Context(), driver.SessionOptions{Name: "test", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := session.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		leased, err := session.Lease(t.Context(), driver.Want{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(leased) == 0 {
			continue
		}
		if err := session.Settle(t.Context(), []driver.Outcome{{Leased: leased[0], Verdict: verdict, Err: errors.New("the broker said no"), Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("nothing was leased")
}

// hold leaves a transaction open until the test ends.
func hold(t *testing.T, p *planted) {
	tx, err := p.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), `UPDATE txonce_sweep SET owner = owner`); err != nil {
		t.Fatal(err)
	}
	p.args = []string{"--max-transaction", "1s"}
}

// otherSchema installs the tables in a schema that search_path does not find, too, and lets check look there.
func otherSchema(t *testing.T, p *planted) string {
	t.Helper()
	var schema string
	if err := p.db.QueryRowContext(t.Context(), `SELECT current_schema() || '_other'`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	p.revert(t, 0)
	if err := migrations.Apply(t.Context(), p.db, "postgres", schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.db.ExecContext(context.Background(), `DROP SCHEMA "`+schema+`" CASCADE`); err != nil {
			t.Error(err)
		}
	})
	p.args = []string{"--schema", schema}
	return schema
}

func park1(t *testing.T, p *planted) {
	p.deliver(t, func(context.Context, *sql.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New("broken"))
	}, delivery("order-1", "x"))
}

// TestCheck plants one fault after the other. Without any, check finds nothing.
func TestCheck(t *testing.T) {
	all := map[string][]fault{
		"postgres": slices.Concat(everywhere(), postgresFaults(), brokerFaults()),
		"mariadb":  slices.Concat(everywhere(), mysqlFaults(false)), "mysql": slices.Concat(everywhere(),
			mysqlFaults(true)), "sqlite": slices.Concat(everywhere(), sqliteFaults()),
	}
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, f := range append(all[name], fault{name: "none"}) {
				if !matrix.RunsOn(name, f.name) {
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					line, driver := s.dsn(t, t.TempDir())
					db, err := sql.Open(s.driver, driver)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = db.Close() })
					if err := migrations.Apply(t.Context(), db, string(s.dialect), ""); err != nil {
						t.Fatal(err)
					}
					p := &planted{seeds: &seeds{t: t, db: db, dialect: s.dialect}, line: line, driver: driver}
					if f.plant != nil {
						f.plant(t, p)
					}
					f.find(t, p)
				})
			}
		})
	}
}

func (f *fault) find(t *testing.T, p *planted) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(cli.Config{Open: open, Sources: sources()})
	cmd.SetArgs(append([]string{"check", "--json", "--strict", "--dsn", p.line}, p.args...))
	cmd.SetOut(&out)
	code := cli.ExitCode(cmd.ExecuteContext(t.Context()))
	var found struct {
		V        int
		Problems []struct{ Level, Check, Text string }
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || found.V != 1 {
		t.Fatalf("exit code %d: %q: %v", code, out.String(), err)
	}
	if f.check == "" {
		for _, problem := range found.Problems {
			if problem.Check != "slots" && problem.Check != "connections" { // of other tests
				t.Errorf("found without a fault: %+v", problem)
			}
		}
		return
	}
	if code != cli.ExitFinding {
		t.Errorf("exit code %d, want %d", code, cli.ExitFinding)
	}
	for _, problem := range found.Problems {
		if problem.Check == f.check && problem.Level == f.level && strings.Contains(problem.Text, f.says) {
			return
		}
	}
	t.Errorf("check %q has not found it (%s, %q): %+v", f.check, f.level, f.says, found.Problems)
}

// command runs another command.
func command(t *testing.T, p *planted, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(cli.Config{Open: open})
	cmd.SetArgs(append(args, "--dsn", p.line))
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (p *planted) revert(t *testing.T, to int) {
	t.Helper()
	if err := migrations.Revert(t.Context(), p.db, string(p.dialect), "", to); err != nil {
		t.Fatal(err)
	}
}

// ago is a time of the past in SQL.
func (p *planted) ago(d time.Duration) string {
	if p.dialect == "postgres" {
		return fmt.Sprintf("now() - interval '%d seconds'", d/time.Second)
	}
	return fmt.Sprint(time.Now().Add(-d).UnixMicro())
}

// old makes billing a consumer that has run for a long time.
func (p *planted) old(t *testing.T) {
	t.Helper()
	p.receive(t, "queue")
	p.exec(t, `UPDATE txonce_windows SET first_run = `+p.ago(60*24*time.Hour))
}

// waitFor waits until a query is true.
func waitFor(t *testing.T, p *planted, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		var yes bool
		if err := p.db.QueryRowContext(ctx, query).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		<-ticker.C
	}
}
