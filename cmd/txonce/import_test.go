package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/migrations"
)

// oldTable makes a hand-written table with n keys, and a file with some of them.
func oldTable(t *testing.T, k *kills, n int) (keysFile string) {
	t.Helper()
	if err := migrations.Apply(t.Context(), k.db, string(k.dialect), ""); err != nil {
		t.Fatal(err)
	}
	k.exec(t, `CREATE TABLE ledger (id varchar(100) NOT NULL)`,
		`CREATE TABLE old_processed (order_id varchar(100) PRIMARY KEY, processed_at timestamp)`)
	values := make([]string, n)
	now := time.Now().UTC().Format(time.DateTime)
	for i := range values {
		values[i] = fmt.Sprintf("('order-%d', '%s')", i, now)
	}
	k.exec(t, `INSERT INTO old_processed VALUES `+strings.Join(values, ", "))
	keysFile = t.TempDir() + "/keys"
	if err := os.WriteFile(keysFile, []byte("order-0\norder-7\norder-99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return keysFile
}

// An import is killed again and again, while the consumer handles new messages. The same command goes on. Then each
// message that the old code has processed is a duplicate, and each new one had one effect.
func TestImportSurvivesKills(t *testing.T) {
	const n = 2000
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKills(t, s)
			keys := oldTable(t, k, n)
			c, err := k.consumer("billing", k.charge)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var handled atomic.Int64
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for i := 0; ctx.Err() == nil; i++ {
					// not with ctx: a message that was begun is counted
					if err := c.Process(t.Context(), delivery(fmt.Sprintf("new-%d", i), "x")); err != nil {
						t.Error(err)
						return
					}
					handled.Add(1)
				}
			}()
			args := []string{
				"import", "--consumer", "billing", "--from", "old_processed", "--key-column", "order_id",
				"--time-column", "processed_at", "--keys-file", keys, "--batch", "50", "--rate", "1000",
				"--reason", "the move to txonce", "--yes",
			}
			for _, part := range []int{n / 10, n / 2} {
				k.killedImport(t, part, args)
			}
			out, err := k.child(t.Context(), "txonce", 10*time.Minute, args...)
			if err != nil || !strings.Contains(out, "imported") || strings.Contains(out, "imported     2000,") {
				t.Fatalf("%v: %s", err, out)
			}
			stop()
			<-ended
			for i := 0; i < n; i += 97 {
				if err := c.Process(t.Context(), delivery(fmt.Sprintf("order-%d", i), "x")); err != nil {
					t.Fatal(err)
				}
			}
			for q, want := range map[string]int64{
				`SELECT count(*) FROM ledger`:             handled.Load(),
				`SELECT count(DISTINCT id) FROM ledger`:   handled.Load(),
				`SELECT count(*) FROM processed_messages`: n + handled.Load(),
			} {
				var got int64
				if err := k.db.QueryRowContext(t.Context(), q).Scan(&got); err != nil || got != want {
					t.Errorf("%s: %d, want %d, %v", q, got, want, err)
				}
			}
		})
	}
}

// killedImport kills an import that has imported so many keys.
func (k *kills) killedImport(t *testing.T, imported int, args []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(slices.Clone(k.env), envRole+"=txonce")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := k.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM processed_messages WHERE id LIKE 'order-%'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n >= imported {
			break
		}
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("the import ended by itself, with %d of %d keys: %v: %s", n, imported, err, text.String())
		}
	}
	_ = cmd.Process.Kill()
	if err := <-ended; err == nil {
		t.Fatalf("the import had ended before it was killed: %s", text.String())
	}
}

// A key that a transaction of a consumer holds does not stop the others. It is imported by the same command later.
func TestImportLeavesAHeldKey(t *testing.T) {
	for name, s := range servers() {
		if name == "sqlite" { // a transaction holds the whole file there
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKills(t, s)
			keys := oldTable(t, k, 100)
			running, free := make(chan struct{}), make(chan struct{})
			c, err := k.consumer("billing", func(context.Context, *sql.Tx, *consumer.Message) error {
				close(running)
				<-free
				return consumer.Permanent(errReleased)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			done := make(chan error, 1)
			go func() { done <- c.Process(t.Context(), delivery("order-42", "x")) }()
			<-running
			args := []string{
				"--consumer", "billing", "--from", "old_processed", "--key-column", "order_id", "--no-time",
				"--keys-file", keys, "--batch", "8", "--reason", "x", "--yes", "--dsn", k.line,
			}
			var out bytes.Buffer
			err = importLine(t.Context(), &out, args...)
			if cli.ExitCode(err) != cli.ExitFinding || !strings.Contains(fmt.Sprint(err), "1 key is held by a transaction") ||
				!strings.Contains(out.String(), "imported     99, and 0 have a claim already") {
				t.Errorf("%v: %s", err, out.String())
			}
			close(free)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			out.Reset()
			if err = importLine(t.Context(), &out, args...); err != nil ||
				!strings.Contains(out.String(), "imported     1, and 99 have a claim already") {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}

// importLine runs txonce import in this process.
func importLine(ctx context.Context, out *bytes.Buffer, args ...string) error {
	cmd := cli.New(cli.Config{Open: open, Sources: sources()})
	cmd.SetArgs(append([]string{"import"}, args...))
	cmd.SetOut(out)
	return cmd.ExecuteContext(ctx)
}

// The keys are compared with those of messages that the old code's consumer group has acknowledged.
func TestImportComparesWithATopic(t *testing.T) {
	t.Parallel()
	brokers := testkafka.Brokers(t)
	topic := testkafka.Topic(t, brokers, 2)
	k := newKills(t, servers()["postgres"])
	oldTable(t, k, 100)
	produceAndCommit(t, brokers, topic, 20) // order-0 to order-19, and two that were not acknowledged
	line := func(more ...string) (string, error) {
		var out bytes.Buffer
		err := importLine(t.Context(), &out, append([]string{
			"--consumer", "billing", "--no-time", "--window", "360h", "--kafka", strings.Join(brokers, ","),
			"--topic", topic, "--key", "json:order", "--reason", "x", "--yes", "--dsn", k.line,
		}, more...)...)
		return out.String(), err
	}
	for text, args := range map[string][]string{
		"has no committed offsets of topic": {"--group", "wrong", "--from", "old_processed", "--key-column", "order_id"},
		"none of 20 real keys is among the 100 keys of --query": {
			"--group", topic, "--query", "SELECT substr(order_id, 7) AS id FROM old_processed", "--key-column", "id",
		},
		"1 of 20 real keys are not among the 99 keys": {
			"--group", topic, "--query", "SELECT * FROM old_processed WHERE order_id <> 'order-7'", "--key-column", "order_id",
		},
	} {
		if out, err := line(args...); cli.ExitCode(err) != cli.ExitRefused || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %s", err, out)
		}
	}
	out, err := line("--group", topic, "--from", "old_processed", "--key-column", "order_id")
	if err != nil || !strings.Contains(out, "compared     20 real keys: 20 in the table, 0 missing") ||
		!strings.Contains(out, "imported     100, ") {
		t.Errorf("%v: %s", err, out)
	}
}

// Times are read as databases and programs write them.
func TestImportReadsTimes(t *testing.T) {
	t.Parallel()
	k := newKills(t, servers()["postgres"])
	oldTable(t, k, 100)
	old := time.Now().Add(-30 * 24 * time.Hour)
	for i, at := range []string{
		"now() - interval '30 days'", "(now() - interval '30 days')::timestamp", "(now() - interval '30 days')::date",
		fmt.Sprint(old.Unix()), fmt.Sprint(old.UnixMilli()), fmt.Sprint(old.UnixMicro()), fmt.Sprint(old.UnixNano()),
		"extract(epoch FROM now() - interval '30 days')", "'" + old.Format(time.RFC3339) + "'", "'" + old.Format(time.DateTime) + "'",
	} {
		var out bytes.Buffer
		err := importLine(t.Context(), &out, "--consumer", fmt.Sprint("billing", i), "--window", "360h", "--unchecked",
			"--query", "SELECT 'old' AS id, "+at+" AS at UNION ALL SELECT 'new', NULL", "--key-column", "id",
			"--time-column", "at", "--reason", "x", "--yes", "--dsn", k.line)
		if err != nil || !strings.Contains(out.String(), "left out     1 row of before ") ||
			!strings.Contains(out.String(), "imported     1, and 0 ") {
			t.Errorf("%s: %v: %s", at, err, out.String())
		}
	}
}
