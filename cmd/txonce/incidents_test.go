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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Each incident of docs/incidents.md, with the command line alone and with the dashboard alone. The commands are those of the page.
func TestIncidents(t *testing.T) {
	var used commands
	t.Run("walk", func(t *testing.T) {
		for name, walk := range map[string]func(*testing.T, *scene){
			"deploy, command line": deployByCommands, "deploy, dashboard": deployByPages,
			"topic, command line": topicByCommands, "topic, dashboard": topicByPages,
			"frozen, command line": frozenByCommands, "frozen, dashboard": frozenByPages,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				walk(t, newScene(t, &used))
			})
		}
	})
	page, err := os.ReadFile("../../docs/incidents.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "txonce ") && !strings.HasPrefix(line, "txonce serve") {
			if n++; !slices.Contains(used.lines, line) {
				t.Errorf("docs/incidents.md has a command that this test does not run: %s", line)
			}
		}
	}
	if n < 7 {
		t.Errorf("%d commands are in docs/incidents.md", n)
	}
}

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
	s := &scene{t: t, used: used, dsn: testdb.Schema(t, testdb.Postgres(t)), brokers: testdb.Kafka(t)}
	s.orders, s.charges = testdb.Topic(t, s.brokers, 1), testdb.Topic(t, s.brokers, 1)
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
	cmd.Env = append(os.Environ(), envRole+"=billing", envDB+"="+strings.Join([]string{s.dsn, strings.Join(s.brokers, ","), s.orders, s.charges}, "\n"))
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
		err := s.pool.QueryRow(s.t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&rows, &orders)
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

const breaks, mends = `ALTER TABLE charges ADD CONSTRAINT small CHECK (cents < 400) NOT VALID`, `ALTER TABLE charges DROP CONSTRAINT small`

func deployByCommands(t *testing.T, s *scene) {
	s.work()
	s.sql(breaks)
	s.send("order-1", "order-2", "order-3")
	s.shows("txonce status", "billing", "3 exhausted")
	list := s.shows("txonce dead-letters list --consumer billing", "violates check", "order-3")
	id := regexp.MustCompile(`(?m)^[0-9a-f]{32}\b`).FindString(list)
	s.used.add("txonce dead-letters show ID") // as the page has it
	s.shows("txonce dead-letters show "+id, `violates check constraint "small"`)
	s.sql(mends)
	s.shows("txonce dead-letters replay --consumer billing --cause exhausted --dry-run", "3 match: 3 would run")
	s.shows("txonce dead-letters replay --consumer billing --cause exhausted --reason 'INC-1: the constraint is dropped' --yes --expect 3 --wait", "3")
	s.charged(3)
	if out, err := s.txonce("txonce status"); err != nil || strings.Contains(out, "exhausted") {
		t.Errorf("letters are left: %v\n%s", err, out)
	}
}

func deployByPages(_ *testing.T, s *scene) {
	b := s.dashboard()
	s.work()
	s.sql(breaks)
	s.send("order-1", "order-2", "order-3")
	b.shows("", "billing: 3 dead letters", `href="letters?consumer=billing"`)
	b.shows("letters?consumer=billing", "violates check constraint", "order-3", `formaction="plan"`)
	s.sql(mends)
	b.shows("plan?consumer=billing&cause=exhausted", "3 letters match", `name="expect" value="3"`, "Request the replay")
	action := b.press("replay", url.Values{"consumer": {"billing"}, "cause": {"exhausted"}, "expect": {"3"}, "why": {"INC-1: the constraint is dropped"}})
	b.shows(action, "3 of 3", "ended", "ann", "INC-1")
	b.shows("letters?consumer=billing", "No dead letter matches")
	s.charged(3)
}

func (s *scene) loseTopic() {
	s.t.Helper()
	s.work()
	s.send("order-1")
	s.charged(1)
	s.announced(1)
	s.admin(func(a sarama.ClusterAdmin) error { return a.DeleteTopic(s.charges) })
	s.send("order-2", "order-3")
	s.charged(3)
}

func (s *scene) createTopic() {
	s.t.Helper()
	s.admin(func(a sarama.ClusterAdmin) error {
		return a.CreateTopic(s.charges, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	})
	s.announced(2)
}

func topicByCommands(_ *testing.T, s *scene) {
	s.loseTopic()
	s.shows("txonce status", "2 pending", "FAILING", s.charges, "topic")
	s.createTopic()
	s.shows("txonce status", "0 pending")
}

func topicByPages(_ *testing.T, s *scene) {
	b := s.dashboard()
	s.loseTopic()
	b.shows("", "Outbox: topic "+s.charges+" fails", "docs/runbook/OutboxStuck.md")
	s.createTopic()
	b.shows("", "all is published")
}

// freeze stops a worker inside a transaction that handles order-2, and starts another worker.
func (s *scene) freeze() (frozen *os.Process) {
	s.t.Helper()
	frozen = s.work()
	s.send("order-1")
	s.charged(1)
	tx, err := s.pool.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(s.t.Context()) }()
	if _, err := tx.Exec(s.t.Context(), `LOCK TABLE charges IN ACCESS EXCLUSIVE MODE`); err != nil {
		s.t.Fatal(err)
	}
	s.send("order-2")
	s.until("the handler waits for the table", func() error {
		var pid int
		err := s.pool.QueryRow(s.t.Context(), `SELECT pid FROM pg_locks WHERE relation = 'charges'::regclass AND NOT granted`).Scan(&pid)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errors.New("it does not wait")
		}
		return err
	})
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	s.until("the worker is frozen", func() error { return stopped(frozen.Pid) }) // on a busy machine its threads run on for a while
	s.work()
	return frozen
}

// stopped returns nil if all threads of a process are stopped.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("no threads of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("a thread still runs: %s", stat)
		}
	}
	return nil
}

func frozenByCommands(t *testing.T, s *scene) {
	frozen := s.freeze()
	out := s.shows("txonce explain billing order-2", "in flight", "idle in transaction")
	pid := regexp.MustCompile(`pid (\d+)`).FindString(out)
	s.shows("txonce check --max-transaction 5s", "the transaction of "+pid+" has been open for") // other tests have transactions, too
	if err := frozen.Kill(); err != nil {
		t.Fatal(err)
	}
	s.charged(2)
	s.shows("txonce explain billing order-2", "duplicate")
}

// The line of the overview comes after a minute: see TestOldTransaction of the dashboard.
func frozenByPages(t *testing.T, s *scene) {
	b := s.dashboard()
	frozen := s.freeze()
	b.shows("explain?consumer=billing&key=order-2", "A redelivery: in_flight", "idle in transaction")
	if err := frozen.Kill(); err != nil {
		t.Fatal(err)
	}
	s.charged(2)
	b.shows("explain?consumer=billing&key=order-2", "A redelivery: duplicate")
}
