//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

// result of a run that ended on its own.
type result struct {
	figures
	code   int
	output string
}

// runChaos runs the command on real servers and checks that it leaves nothing behind.
func runChaos(t *testing.T, args ...string) result {
	t.Helper()
	dsn, brokers := testdb.Postgres(t), testkafka.Brokers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := self.Command(ctx, append(args, "-json", "-postgres", dsn, "-kafka", strings.Join(brokers, ","))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	r := result{code: cmd.ProcessState.ExitCode(), output: stderr.String() + string(out)}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r.figures); err != nil {
		t.Fatalf("%v: the last line is not a JSON object:\n%s", args, r.output)
	}
	leftBehind(t, dsn, brokers, regexp.MustCompile(`txonce_relaychaos_\w+`).FindString(r.output))
	return r
}

// leftBehind fails the test if the run's schema or topic still exists.
func leftBehind(t *testing.T, dsn string, brokers []string, name string) {
	t.Helper()
	if name == "" {
		t.Error("the run does not say what it is called")
		return
	}
	var schemas int
	if err := open(t, dsn).QueryRow(`SELECT count(*) FROM pg_namespace WHERE nspname = $1`,
		name).Scan(&schemas); err != nil || schemas > 0 {
		t.Errorf("schema %s is left behind (%v)", name, err)
	}
	admin, err := sarama.NewClusterAdmin(brokers, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for since := time.Now(); ; <-time.After(100 * time.Millisecond) {
		// the broker learns of the deletion after the controller
		topics, err := admin.ListTopics()
		_, there := topics[name]
		if err == nil && !there {
			return
		}
		if time.Since(since) > time.Minute {
			t.Fatalf("topic %s is left behind (%v)", name, err)
		}
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestRelaysUnderFaults is a short form of make chaos-relay. With its seed handlers fail in every way.
func TestRelaysUnderFaults(t *testing.T) {
	r := runChaos(t, "-seed", "1", "-messages", "2000", "-keys", "100", "-rate", "200", "-kills", "3", "-pauses", "3",
		"-lease", "1s")
	if r.code != 0 || !r.OK || r.Committed != 2000 || r.Kills < 3 || r.Pauses < 3 || r.InPublish == 0 ||
		r.RolledBack == 0 || r.Refused == 0 {
		t.Errorf("exit code %d:\n%s", r.code, r.output)
	}
	t.Log(r.line())
}

// The audit must find the faults of each broken program.
func TestBrokenRelayIsFound(t *testing.T) {
	for way, found := range map[string]func(r result) bool{
		"lose":       func(r result) bool { return r.Missing > 0 },
		"mark-first": func(r result) bool { return r.Missing > 0 },
		"disorder":   func(r result) bool { return r.OutOfOrder > 0 },
		"dual-write": func(r result) bool { return r.Phantom > 0 },
	} {
		t.Run(way, func(t *testing.T) {
			r := runChaos(t, "-broken", way, "-messages", "2000", "-keys", "20", "-rate", "500", "-kills", "2",
				"-pauses", "1", "-lease", "1s")
			if r.code != 1 || r.OK || !found(r) {
				t.Errorf("exit code %d:\n%s", r.code, r.output)
			}
			t.Log(r.line())
		})
	}
}

func TestRelayStartedByHand(t *testing.T) {
	cmd, out := self.Recorded(t, relayCommand)
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(out.String(), "started by the command") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestRelayChaosRefusesNonsense(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-messages 10", "-messages 10"},
		{"-keys 0", "-keys 0"},
		{"-rate 0", "-rate 0"},
		{"-kills -1", "-kills -1"},
		{"-pauses -1", "-pauses -1"},
		{"-lease 1ms", "-lease 1ms"},
		{"-batch 0", "-batch 0"},
		{"-broken badly", "-broken badly"},
		{"now", `"now" is no flag`},
	} {
		var stderr bytes.Buffer
		args := append([]string{"-postgres", "x", "-kafka", "y"}, strings.Fields(test.args)...)
		if code := chaos(args, &stderr, &stderr); code != 2 || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: exit code %d:\n%s", test.args, code, &stderr)
		}
	}
}
