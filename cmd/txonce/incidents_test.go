package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
)

// Each incident of docs/incidents.md, with the command line alone and with the dashboard alone. The commands are those
// of the page.
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
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "txonce ") &&
			!strings.HasPrefix(line, "txonce serve") {
			if n++; !slices.Contains(used.lines, line) {
				t.Errorf("docs/incidents.md has a command that this test does not run: %s", line)
			}
		}
	}
	if n < 7 {
		t.Errorf("%d commands are in docs/incidents.md", n)
	}
}

const breaks, mends = `ALTER TABLE charges ADD CONSTRAINT small CHECK (cents < 400) NOT VALID`,
	`ALTER TABLE charges DROP CONSTRAINT small`

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
	action := b.press("replay", url.Values{
		"consumer": {"billing"}, "cause": {"exhausted"}, "expect": {"3"},
		"why": {"INC-1: the constraint is dropped"},
	})
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
	// on a busy machine its threads run on for a while
	s.until("the worker is frozen", func() error { return stopped(frozen.Pid) })
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
	// other tests have transactions, too
	s.shows("txonce check --max-transaction 5s", "the transaction of "+pid+" has been open for")
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
