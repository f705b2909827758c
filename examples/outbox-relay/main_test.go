package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

func TestMain(m *testing.M) { self.Main(m, main) }

func command(t *testing.T, env ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	cmd, log = self.Recorded(t)
	cmd.Env = append(cmd.Env, env...)
	return cmd, log
}

func TestRelayIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines > 70 {
		t.Errorf("main.go has %d lines, want 70 at the most (%v)", lines, err)
	}
}

// An enqueued message is published, and SIGTERM ends the relay without an error.
func TestRelay(t *testing.T) {
	dsn, brokers := testdb.Schema(t, testdb.Postgres(t)), testkafka.Brokers(t)
	topic := testkafka.Topic(t, brokers, 1)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}

	cmd, log := command(t, "DATABASE_URL="+dsn, "KAFKA_BROKERS="+strings.Join(brokers, ","))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return store.Enqueue(t.Context(), tx, outbox.Message{
			ID: "order-1:charged", Topic: topic,
			OrderingKey: "order-1", Payload: []byte("42"),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	m := firstOf(t, brokers, topic)
	if id := header(m, outbox.HeaderID); id != "order-1:charged" || string(m.Key) != "order-1" ||
		string(m.Value) != "42" {
		t.Errorf("published: ID %q, key %q, %q", id, m.Key, m.Value)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log)
	}
	var pending, relays int
	err = pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM outbox_messages), (SELECT count(*) FROM txonce_relays)`).Scan(&pending, &relays)
	if err != nil || pending != 0 || relays != 0 {
		t.Errorf("left in the outbox: %d messages, %d relays, %v\n%s", pending, relays, err, log)
	}
}

func firstOf(t *testing.T, brokers []string, topic string) *sarama.ConsumerMessage {
	t.Helper()
	consumer, err := sarama.NewConsumer(brokers, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	part, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	select {
	case m := <-part.Messages():
		return m
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was published")
		return nil
	}
}

func header(m *sarama.ConsumerMessage, name string) string {
	for _, h := range m.Headers {
		if string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}

// Without a database, a broker or tables the relay names what is missing and ends.
func TestRelayNamesWhatIsMissing(t *testing.T) {
	dsn, brokers := testdb.Schema(t, testdb.Postgres(t)), strings.Join(testkafka.Brokers(t), ",")
	for _, test := range []struct{ name, database, brokers, want string }{
		{"a malformed DSN", "nonsense", brokers, "cannot parse"},
		{"no broker", dsn, "127.0.0.1:1", "connection refused"},
		{"no tables", dsn, brokers, "schema"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, log := command(t, "DATABASE_URL="+test.database, "KAFKA_BROKERS="+test.brokers)
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(log.String(), test.want) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, test.want, log)
			}
		})
	}
}
