package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
)

// commands are the lines that were run.
type commands struct {
	mu    sync.Mutex
	lines []string
}

func (c *commands) add(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
}

// scene is a service with its database and its topics.
type scene struct {
	t               *testing.T
	used            *commands
	dsn             string
	brokers         []string
	orders, charges string
	pool            *pgxpool.Pool
	producer        sarama.SyncProducer
	client          sarama.Client
}

func newScene(t *testing.T, used *commands) *scene {
	t.Helper()
	s := &scene{t: t, used: used, dsn: testdb.Schema(t, testdb.Postgres(t)), brokers: testkafka.Brokers(t)}
	s.orders, s.charges = testkafka.Topic(t, s.brokers, 1), testkafka.Topic(t, s.brokers, 1)
	var err error
	if s.pool, err = pgxpool.New(t.Context(), s.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	s.sql(`CREATE TABLE charges (order_id text, cents bigint)`)
	cfg := sarama.NewConfig()
	cfg.Version, cfg.Producer.Return.Successes = sarama.V2_4_0_0, true
	if s.client, err = sarama.NewClient(s.brokers, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close() })
	if s.producer, err = sarama.NewSyncProducerFromClient(s.client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.producer.Close() })
	return s
}

func (s *scene) sql(statement string) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// work starts a worker, and returns its process.
func (s *scene) work() *os.Process {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"=billing",
		envDB+"="+strings.Join([]string{s.dsn, strings.Join(s.brokers, ","), s.orders, s.charges}, "\n"))
	stdin, err := cmd.StdinPipe() // its end is the worker's end
	if err != nil {
		s.t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("worker %d:\n%s", cmd.Process.Pid, log.String())
		}
	})
	return cmd.Process
}

func (s *scene) send(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		value := fmt.Sprintf(`{"order_id": %q, "cents": 500}`, id)
		if _, _, err := s.producer.SendMessage(&sarama.ProducerMessage{Topic: s.orders, Value: sarama.StringEncoder(value)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// until calls f until it returns nil.
func (s *scene) until(what string, f func() error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		}
	}
}

// charged waits until n orders are charged, each once.
func (s *scene) charged(n int) {
	s.t.Helper()
	s.until("charges", func() error {
		var rows, orders int
		err := s.pool.QueryRow(s.t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&rows,
			&orders)
		if err == nil && (rows != n || orders != n) {
			err = fmt.Errorf("%d rows for %d orders, want %d", rows, orders, n)
		}
		return err
	})
}

// announced waits until the topic of charges has n messages.
func (s *scene) announced(n int64) {
	s.t.Helper()
	s.until("announcements", func() error {
		if err := s.client.RefreshMetadata(s.charges); err != nil {
			return err
		}
		end, err := s.client.GetOffset(s.charges, 0, sarama.OffsetNewest)
		if err == nil && end < n {
			err = fmt.Errorf("%d messages, want %d", end, n)
		}
		return err
	})
}

func (s *scene) admin(do func(sarama.ClusterAdmin) error) {
	s.t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_4_0_0
	admin, err := sarama.NewClusterAdmin(s.brokers, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer admin.Close()
	s.until("administer", func() error { return do(admin) })
}

// txonce runs a line of a shell, and returns what it prints.
func (s *scene) txonce(line string) (string, error) {
	s.t.Helper()
	s.used.add(line)
	var args []string
	for i, part := range strings.Split(line, "'") { // quotes are around whole arguments
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	var out bytes.Buffer
	root := cli.New(cli.Config{Open: open})
	root.SetArgs(append(args[1:], "--dsn", s.dsn))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(s.t.Context())
	if cli.ExitCode(err) == cli.ExitFinding {
		err = nil
	}
	return out.String(), err
}

// shows waits until a command prints the texts, and returns all of it.
func (s *scene) shows(line string, texts ...string) (out string) {
	s.t.Helper()
	s.until(line, func() (err error) {
		out, err = s.txonce(line)
		return errors.Join(err, has(out, texts...))
	})
	return out
}

func has(out string, texts ...string) error {
	for _, text := range texts {
		if !strings.Contains(out, text) {
			return fmt.Errorf("no %q in:\n%s", text, out)
		}
	}
	return nil
}

// browser is a person with nothing but the dashboard.
type browser struct {
	*scene
	address string
}

func (s *scene) dashboard() browser {
	address, stop := serving(s.t, s.dsn, "--act-as", "ann")
	s.t.Cleanup(stop)
	return browser{s, address}
}

// shows waits until a page has the texts, and returns it.
func (b browser) shows(path string, texts ...string) (page string) {
	b.t.Helper()
	b.until(path, func() error {
		var code int
		if code, page = answer(b.t)(http.Get(b.address + "/" + path)); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, page)
		}
		return has(page, texts...)
	})
	return page
}

// press sends a form, and returns the address of the page that answers.
func (b browser) press(path string, form url.Values) string {
	b.t.Helper()
	resp, err := http.PostForm(b.address+"/"+path, form)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s, %v\n%s", path, resp.Status, err, body)
	}
	return strings.TrimPrefix(resp.Request.URL.RequestURI(), "/")
}
