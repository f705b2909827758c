package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// An interrupted command exits with 5.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/test.db"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "migrate", "up", "--dsn", path)
	cmd.Env = append(os.Environ(), envRole+"=txonce")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd = exec.CommandContext(t.Context(), os.Args[0], "status", "--watch", "1h", "--dsn", path)
	cmd.Env = append(os.Environ(), envRole+"=txonce")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitInterrupted {
		t.Errorf("%v, want exit status %d: %s", err, cli.ExitInterrupted, text.String())
	}
}

// A message that a consumer group has acknowledged, and that is neither claimed nor parked, is lost.
func TestAuditKafka(t *testing.T) {
	t.Parallel()
	brokers := testkafka.Brokers(t)
	topic := testkafka.Topic(t, brokers, 2)
	line := testdb.Schema(t, testdb.Postgres(t))
	db, err := sql.Open("pgx", line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	s := &seeds{t: t, db: db, dialect: sqlstore.Postgres}
	c, err := s.consumer("billing", func(_ context.Context, _ *sql.Tx, m *consumer.Message) error {
		if m.ID == "order-3" {
			return consumer.Permanent(errors.New("broken"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	produceAndCommit(t, brokers, topic, 20)
	for i := range 20 {
		if i != 7 { // acknowledged, and never processed
			if err := c.Process(t.Context(), delivery(fmt.Sprintf("order-%d", i), "x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	type part struct {
		Checked, Lost, Skipped int
		Notes                  []string
		Findings               []struct{ Key, Position string }
	}
	audit := func(group string) part {
		var out bytes.Buffer
		cmd := cli.New(cli.Config{Open: open, Sources: sources()})
		cmd.SetArgs([]string{
			"audit", "--consumer", "billing", "--kafka", strings.Join(brokers, ","), "--group", group, "--topic", topic,
			"--key", "json:order", "--json", "--dsn", line,
		})
		cmd.SetOut(&out)
		if code := cli.ExitCode(cmd.ExecuteContext(t.Context())); code != cli.ExitFinding {
			t.Errorf("exit code %d, want %d", code, cli.ExitFinding)
		}
		var found struct{ Audits []part }
		if err := json.Unmarshal(out.Bytes(), &found); err != nil || len(found.Audits) != 1 {
			t.Fatalf("%q: %v", out.String(), err)
		}
		return found.Audits[0]
	}
	if a := audit("wrong"); a.Checked != 0 || len(a.Notes) != 1 || !strings.HasPrefix(a.Notes[0],
		"group wrong has no committed offsets of topic "+topic) {
		t.Errorf("%+v", a)
	}
	a := audit(topic)
	if len(a.Notes) > 0 || a.Checked != 20 || a.Lost != 1 || a.Skipped != 0 || len(a.Findings) != 1 ||
		a.Findings[0].Key != "order-7" || !strings.HasPrefix(a.Findings[0].Position, topic+"/1/") {
		t.Errorf("%+v", a)
	}
}

// produceAndCommit writes n messages, and two more that the group topic has not acknowledged.
func produceAndCommit(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_4_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for i := range n + 2 {
		body := fmt.Sprintf(`{"order": "order-%d"}`, i)
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Partition: int32(i % 2),
			Value: sarama.StringEncoder(body),
		}); err != nil {
			t.Fatal(err)
		}
	}
	offsets, err := sarama.NewOffsetManagerFromClient(topic, client)
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		partition, err := offsets.ManagePartition(topic, p)
		if err != nil {
			t.Fatal(err)
		}
		partition.MarkOffset(int64(n/2), "")
		defer partition.Close()
	}
	offsets.Commit()
	if err := offsets.Close(); err != nil {
		t.Fatal(err)
	}
}

// A user who may only read sees everything, and is refused where something would be changed. The server can be reached.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	line := testdb.Schema(t, testdb.Postgres(t))
	db, err := sql.Open("pgx", line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	p := &planted{seeds: &seeds{t: t, db: db, dialect: sqlstore.Postgres}, line: line}
	park1(t, p)
	var schema string
	if err := db.QueryRowContext(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	user := "reader_" + schema
	p.exec(t, `CREATE ROLE "`+user+`" LOGIN PASSWORD 'reader'`, `GRANT USAGE ON SCHEMA "`+schema+`" TO "`+user+`"`,
		`GRANT SELECT ON ALL TABLES IN SCHEMA "`+schema+`" TO "`+user+`"`)
	t.Cleanup(func() {
		for _, q := range []string{`DROP OWNED BY "` + user + `"`, `DROP ROLE "` + user + `"`} {
			if _, err := db.ExecContext(context.Background(), q); err != nil {
				t.Error(err)
			}
		}
	})
	u, err := url.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "reader")
	for _, tc := range []struct {
		code int
		args []string
	}{
		{cli.ExitFine, []string{"status"}},
		{cli.ExitFine, []string{"dead-letters", "list"}},
		{cli.ExitFine, []string{"dead-letters", "replay", "--consumer", "billing", "--dry-run"}},
		{cli.ExitFine, []string{"migrate", "status"}},
		{cli.ExitFine, []string{"actions", "list"}},
		{cli.ExitRefused, []string{"dead-letters", "replay", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "1"}},
		{cli.ExitRefused, []string{"dead-letters", "discard", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "1"}},
		{cli.ExitRefused, []string{"explain", "billing", "order-1"}},
	} {
		var out bytes.Buffer
		err := runLine(t.Context(), &out, append(tc.args, "--dsn", u.String())...)
		if cli.ExitCode(err) != tc.code {
			t.Errorf("%s: %v (%d), want %d", tc.args, err, cli.ExitCode(err), tc.code)
		}
	}
}
