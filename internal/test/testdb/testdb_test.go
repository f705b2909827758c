package testdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
)

func TestSchema(t *testing.T) {
	for _, server := range []struct {
		name string
		dsn  func(testing.TB) string
		want string
	}{
		{"PostgreSQL 15", testdb.Postgres, "15."},
		{"PostgreSQL 18", testdb.Postgres18, "18."},
	} {
		t.Run(server.name, func(t *testing.T) {
			dsn := server.dsn(t)
			var schema string
			t.Run("own schema", func(t *testing.T) {
				conn := connect(t, testdb.Schema(t, dsn))
				if version := conn.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version, server.want) {
					t.Errorf("server_version = %s, want %s…", version, server.want)
				}
				query(t, conn, "SELECT current_schema()", &schema)
				if _, err := conn.Exec(t.Context(), "CREATE TABLE ledger (id int)"); err != nil {
					t.Fatal(err)
				}
			})
			var left int
			query(t, connect(t, dsn), "SELECT count(*) FROM pg_namespace WHERE nspname = '"+schema+"'", &left)
			if schema == "" || left != 0 {
				t.Errorf("schema %q is still there after its test", schema)
			}
		})
	}
}

func TestTopic(t *testing.T) {
	brokers := testdb.Kafka(t)
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	var topic string
	t.Run("own topic", func(t *testing.T) {
		topic = testdb.Topic(t, brokers, 3)
		partitions, err := client.Partitions(topic)
		if err != nil || len(partitions) != 3 {
			t.Errorf("Partitions(%s) = %v, %v; want 3", topic, partitions, err)
		}
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x")}); err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); client.RefreshMetadata(topic) == nil; <-tick.C { // metadata may name a deleted topic for a moment
		if time.Since(began) > time.Minute {
			t.Fatalf("topic %s is still there after its test", topic)
		}
	}
}

// A missing server must fail the test and name the command. A skip would let a suite pass without running.
func TestMissingServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short skips instead, which is what this test is about")
	}
	for _, test := range []struct{ name, env, file, want string }{
		{"no file", "", "", "TXONCE_POSTGRES is not set and not in .services/env: run make services-up"},
		{"file without it", "", "TXONCE_KAFKA=127.0.0.1:1\n", "TXONCE_POSTGRES is not set"},
		{"stale file", "", "TXONCE_POSTGRES=postgres://127.0.0.1:1/x\n", "does not answer"},
		{"environment goes first", "postgres://127.0.0.1:2/x", "TXONCE_POSTGRES=postgres://127.0.0.1:1/x\n", "127.0.0.1:2"},
		{"no DSN", "nonsense", "", "TXONCE_POSTGRES: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkout := t.TempDir()
			write(t, filepath.Join(checkout, "go.mod"), "module github.com/txonce/txonce\n")
			if test.file != "" {
				write(t, filepath.Join(checkout, ".services", "env"), test.file)
			}
			t.Chdir(checkout)
			t.Setenv("TXONCE_POSTGRES", test.env)
			got := fatal(t, func(tb testing.TB) { testdb.Postgres(tb) })
			if !strings.Contains(got, test.want) {
				t.Errorf("t.Fatal said %q, want it to contain %q", got, test.want)
			}
		})
	}
}

// recorder is a testing.TB that records calls of Fatal.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%v", args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fatal returns the text that f passes to Fatal, or "".
func fatal(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.said
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.PgConn().Close(t.Context()) })
	return conn
}

func query(t *testing.T, conn *pgx.Conn, sql string, into any) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(into); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// PgBouncer really shares server connections: more clients than connections are served, and one client gets different
// connections.
func TestPgBouncer(t *testing.T) {
	pooled, direct := testdb.PgBouncer(t)
	const clients = 60 // the pool has 20
	conns, servers := make([]*pgx.Conn, clients), make([]int, clients)
	for i := range conns { // connect all first: the pooler replaces a server connection that is unused for 5 s
		conns[i] = connect(t, pooled)
	}
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM pg_sleep(.02)", pgx.QueryExecModeExec).Scan(&servers[i])
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(servers)
	if different := slices.Compact(servers); servers[0] == 0 || len(different) > 20 {
		t.Errorf("%d clients were served by the processes %v; want all of them to be, by 20 at the most", clients, different)
	}
	var name string
	for _, dsn := range []string{pooled, direct} {
		if query(t, connect(t, dsn), "SELECT current_schema()", &name); !strings.HasPrefix(name, "testpgbouncer_") {
			t.Errorf("the schema is %s, want one of the test's own", name)
		}
	}
}
