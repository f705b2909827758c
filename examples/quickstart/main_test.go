package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

// command returns a command that runs the demo, and the folder for its temporary files.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd, tmp = self.Command(ctx, args...), t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	return cmd, tmp
}

// result of a demo that ended on its own.
type result struct {
	figures
	code   int
	output string
}

func runDemo(t *testing.T, args ...string) result {
	t.Helper()
	return runDemoDuring(t, nil, args...)
}

// runDemoDuring calls meanwhile, if it is not nil, when the first worker has been killed.
func runDemoDuring(t *testing.T, meanwhile func(), args ...string) result {
	t.Helper()
	cmd, tmp := command(t, append(args, "-json")...)
	out := startDemo(t, cmd)
	if meanwhile != nil {
		out.await(t, "is killed (SIGKILL)")
		meanwhile()
	}
	_ = cmd.Wait()
	r := result{code: cmd.ProcessState.ExitCode(), output: out.String()}
	lines := strings.Split(strings.TrimSpace(out.stdout()), "\n")
	var fields map[string]any
	last := []byte(lines[len(lines)-1])
	if json.Unmarshal(last, &fields) != nil || json.Unmarshal(last, &r.figures) != nil {
		t.Fatalf("%v: the last line is not a JSON object:\n%s", args, r.output)
	}
	want := strings.Fields("complete messages deliveries duplicates_suppressed effects lost doubled mismatches_parked poison_parked " +
		"unprovable_parked events events_missing events_republished events_out_of_order events_with_foreign_id " +
		"auditor_claims auditor_lost auditor_doubled auditor_events_lost auditor_meanwhile auditor_false " +
		"kills freezes rebalances redelivered longest_stall_seconds seconds per_second")
	if slices.Contains(args, "-telemetry") {
		want = append(want, "scraped")
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the JSON object has the fields %v", got)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("%v: left behind: %v, %v", args, left, err)
	}
	return r
}

var firstKill = regexp.MustCompile(`(worker-[12]) is killed \(SIGKILL\) inside the handler of order-\d+, at (\d+) %`)

// check fails the test if a run broke one of the demo's promises.
func (r result) check(t *testing.T, messages int) {
	t.Helper()
	p := newPlan(messages, 0) // any seed plants as many
	if r.code != 0 || !r.Complete || r.Lost != 0 || r.Doubled != 0 || r.UnprovableParked != 0 ||
		r.PoisonParked != p.poison || r.MismatchesParked != p.reused ||
		r.EventsMissing != 0 || r.EventsOutOfOrder != 0 || r.EventsWithForeignID != 0 ||
		r.AuditorLost+r.AuditorDoubled+r.AuditorEventsLost+r.AuditorFalse != 0 || r.AuditorClaims != r.Effects {
		t.Errorf("exit code %d", r.code)
	}
	if r.Messages != messages || r.Effects != messages-p.poison-p.reused || r.Deliveries < messages ||
		r.Deliveries > maxCopies*messages ||
		r.Events != r.Effects+r.EventsRepublished ||
		r.DuplicatesSuppressed < r.Deliveries-maxCopies*(p.poison+p.reused)-r.Effects || r.Seconds <= 0 ||
		r.PerSecond <= 0 {
		t.Error("the figures do not fit together")
	}
	kill := firstKill.FindStringSubmatch(r.output)
	if r.Kills < 1 || kill == nil {
		t.Fatalf("nobody was killed inside a handler:\n%s", r.output)
	}
	if at, _ := strconv.Atoi(kill[2]); at >= 30 {
		t.Errorf("the first kill came at %d %% of the deliveries", at)
	}
	if !strings.Contains(r.output, dynamicName+" is told to stop (SIGTERM)") {
		t.Error("the dynamic worker did not leave")
	}
	if t.Failed() {
		t.Log(r.output)
	}
}

func TestDemo(t *testing.T) {
	for _, rebalance := range []string{"eager", "cooperative"} {
		t.Run(rebalance, func(t *testing.T) {
			runDemo(t, "-messages", "400", "-rebalance", rebalance).check(t, 400)
		})
	}
	t.Run("kills go on", func(t *testing.T) {
		r := runDemo(t, "-messages", "1200", "-kill-every", "500ms")
		r.check(t, 1200)
		if r.Kills < 3 {
			// each is inside a handler, so its message is delivered again; Redelivered lacks what a killed worker has
			// not reported
			t.Errorf("%d kills: is it tested at all?", r.Kills)
		}
	})
}

// TestDemoOnServers covers each real server, store and rebalance strategy, and checks that nothing is left on the
// servers.
func TestDemoOnServers(t *testing.T) {
	t.Parallel()
	brokers := testkafka.Brokers(t)
	messages := 500
	if matrix.All() {
		messages = 2000
	}
	for _, test := range []struct{ server, dsn, args string }{
		{"postgres15", testdb.Postgres(t), "-store pgx -rebalance eager"},
		{"postgres15", testdb.Postgres(t), "-store sql-postgres -rebalance cooperative"},
		{"postgres18", testdb.Postgres18(t), "-store pgx -rebalance cooperative"},
	} {
		t.Run(test.server+test.args, func(t *testing.T) {
			all := append(strings.Fields(test.args), "-messages", strconv.Itoa(messages), "-kill-every", "700ms",
				"-broker", "kafka",
				"-kafka", strings.Join(brokers, ","), "-postgres", test.dsn)
			r := runDemo(t, all...)
			r.check(t, messages)
			name := regexp.MustCompile(`txonce_quickstart_\w+`).FindString(r.output)
			if name == "" {
				t.Fatalf("the topic is not named:\n%s", r.output)
			}
			gone(t, name, test.dsn, brokers)
		})
	}
}

// gone fails the test if there is still a schema, topic or group of this name.
func gone(t *testing.T, name, dsn string, brokers []string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	admin, err := sarama.NewClusterAdmin(brokers, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var left string
	eventually(t, func() bool { // metadata may name deleted topics for a moment
		var schemas int
		if err := db.QueryRow(`SELECT count(*) FROM pg_namespace WHERE nspname = $1`, name).Scan(&schemas); err != nil {
			t.Fatal(err)
		}
		topics, err := admin.ListTopics()
		if err != nil {
			t.Fatal(err)
		}
		groups, err := admin.ListConsumerGroups()
		if err != nil {
			t.Fatal(err)
		}
		_, topic := topics[name]
		_, events := topics[name+"_events"]
		_, group := groups[name]
		left = fmt.Sprintf("schema %v, topic %v, topic of events %v, group %v", schemas > 0, topic, events, group)
		return schemas == 0 && !topic && !events && !group
	}, func() string { return name + " is left behind: " + left })
}

// The audit and the auditor of txonce must find the faults of each broken worker.
func TestBrokenIsFound(t *testing.T) {
	seeds := 1
	if matrix.All() {
		seeds = 20
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			var mu sync.Mutex
			found := 0
			t.Run("seed", func(t *testing.T) {
				for seed := range seeds {
					t.Run(strconv.Itoa(seed), func(t *testing.T) {
						t.Parallel()
						r := runDemo(t, "-broken", way, "-messages", "100", "-seed", strconv.Itoa(seed))
						bad := map[string]int{
							"mark-first": r.Lost, "effect-first": r.Doubled,
							"dual-write": r.EventsMissing,
						}
						auditor := map[string]int{
							"mark-first": r.AuditorLost, "effect-first": r.AuditorDoubled,
							"dual-write": r.AuditorEventsLost,
						}
						if !r.Complete || r.code != 1 || bad[way] == 0 || auditor[way] == 0 {
							t.Errorf("exit code %d:\n%s", r.code, r.output)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						found++
					})
				}
			})
			t.Logf("the audit found what %s broke in %d seeds of %d", way, found, seeds)
		})
	}
}

// Ctrl-C removes the run's tables and topics.
func TestInterrupted(t *testing.T) {
	cmd, tmp := command(t, "-messages", "3000")
	out := startDemo(t, cmd)
	out.await(t, "is killed (SIGKILL)")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// startDemo starts cmd and collects its output.
func startDemo(t *testing.T, cmd *exec.Cmd) *output {
	t.Helper()
	out := &output{}
	cmd.Stdout, cmd.Stderr = &stream{all: out, out: true}, &stream{all: out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return out
}

// output is what a demo has printed so far.
type output struct {
	mu        sync.Mutex
	text, out bytes.Buffer // stdout and stderr together, and stdout alone
}

type stream struct {
	all *output
	out bool
}

func (s *stream) Write(b []byte) (int, error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.out {
		s.all.out.Write(b)
	}
	return s.all.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) stdout() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.String()
}

func (o *output) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() bool { return strings.Contains(o.String(), text) }, func() string {
		return fmt.Sprintf("it does not say %q:\n%s", text, o)
	})
}

// eventually waits at most five minutes until isTrue returns true.
func eventually(t *testing.T, isTrue func() bool, otherwise func() string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); !isTrue(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}

// The error names a missing server, and the demo does not hang.
func TestMissingServers(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-store pgx -postgres postgres://127.0.0.1:1/x", "postgres database"},
		{"-broker kafka -kafka 127.0.0.1:1", "connect to Kafka at"},
	} {
		cmd, tmp := command(t, strings.Fields(tt.args)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: exit code %d, want 1 and %q:\n%s", tt.args, code, tt.want, out)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", tt.args, left, err)
		}
	}
}

// The file to copy must stay short.
func TestWorkerIsShort(t *testing.T) {
	text, err := os.ReadFile("worker.go")
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines >= 80 {
		t.Errorf("worker.go has %d lines, want fewer than 80 (%v)", lines, err)
	}
}

func TestWorkerStartedByHand(t *testing.T) {
	cmd, _ := command(t, workerCommand)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "started by the demo") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
