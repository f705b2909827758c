package pgxstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// stage is a consumer in a schema of its own, whose handlers follow scripts.
type stage struct {
	*outboxDB
	scripts   map[string]*script
	semaphore chan struct{}
	c         *consumer.Consumer[pgx.Tx]

	mu          sync.Mutex
	now, atMost int // handlers that run at the same time
}

func newStage(t *testing.T, dsn string) *stage {
	s := &stage{outboxDB: newOutboxDBAt(t, dsn, 3), semaphore: make(chan struct{}, 1)}
	pgxstore.SetStallsAfter(s.store, 100*time.Millisecond)
	s.exec(t, `ALTER TABLE effects ADD place serial`)
	s.exec(t, `CREATE TABLE counters (name text PRIMARY KEY, n int NOT NULL)`)
	return s
}

func (s *stage) begin(t *rapid.T, name string, interleave bool, scripts map[string]*script) {
	s.scripts = map[string]*script{}
	for id, k := range scripts {
		s.scripts[id] = &script{steps: k.steps, fault: k.fault, times: k.times}
	}
	var err error
	s.c, err = consumer.New(consumer.Config[pgx.Tx]{
		Name: name, Store: s.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler), MaxAttempts: 3,
		Backoff: func(int) time.Duration { return 0 }, ParkLimit: consumer.ParkLimit{Unlimited: true},
		Interleave: interleave,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			s.count(1)
			defer s.count(-1)
			return s.play(ctx, tx, m, name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run delivers msgs until all are acknowledged, and returns what they have left behind.
func (s *stage) run(t *testing.T, rt *rapid.T, prefix string, msgs []consumer.Message, sizes []int,
	keys map[string]string,
) stageResult {
	var queue []*consumer.Message
	for _, m := range msgs {
		queue = append(queue, &m)
	}
	s.exec(t, `INSERT INTO counters VALUES ($1, 0)`, prefix)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for round := 0; len(queue) > 0; round++ {
		if round == 300 {
			rt.Fatalf("%d messages are never acknowledged, %s: %v", len(queue), queue[0].ID,
				s.c.ProcessBatch(ctx, queue)[0])
		}
		n := min(sizes[round%len(sizes)], len(queue))
		var again []*consumer.Message
		for i, err := range s.c.ProcessBatch(ctx, queue[:n]) {
			retry, ok := errors.AsType[*consumer.RetryError](err)
			switch {
			case err == nil:
				continue
			case !ok:
				rt.Fatalf("%s is rejected: %v", queue[i].ID, err)
			case !retry.Held:
				queue[i].Attempt++
			}
			again = append(again, queue[i])
		}
		queue = append(again, queue[n:]...)
	}
	return s.result(t, prefix, keys)
}

// stageResult is what a run has left behind.
type stageResult struct {
	Effects, Published, Letters []string
	Orders                      map[string][]string // of effects and outbox messages, by ordering key
	Counter                     []string
}

func (s *stage) result(t *testing.T, prefix string, keys map[string]string) (o stageResult) {
	o.Orders = map[string][]string{}
	order := func(kind string, names []string) {
		for _, name := range names {
			id, _, _ := strings.Cut(name, " ")
			if key := keys[id]; key != "" {
				o.Orders[kind+key] = append(o.Orders[kind+key], name)
			}
		}
	}
	o.Effects = s.strings(t, `SELECT name FROM effects WHERE starts_with(name, $1) OR name IN ('undone', 'while rows are open') ORDER BY place`, prefix)
	order("effects ", o.Effects)
	slices.Sort(o.Effects)
	o.Published = s.strings(t, `SELECT convert_from(payload, 'UTF8') || ' ' || id FROM outbox_messages WHERE starts_with(convert_from(payload, 'UTF8'), $1) ORDER BY seq`, prefix)
	order("published ", o.Published)
	slices.Sort(o.Published)
	o.Counter = s.strings(t, `SELECT n::text FROM counters WHERE name = $1`, prefix)
	letters, err := s.c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Consumer: prefix, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		cause, _, _ := strings.Cut(l.Error, "\n")
		if strings.Contains(cause, "ended its goroutine") {
			cause = "goexit"
		}
		// pgx's CopyFrom says so unless this connection has described the table before
		cause = strings.TrimPrefix(cause, "statement description failed: ")
		o.Letters = append(o.Letters, fmt.Sprint(l.Record.Key.ID, " ", string(l.Message.Payload), " ", l.Cause,
			" ", cause))
	}
	slices.Sort(o.Letters)
	return o
}

// Interleave leaves the same effects, outbox messages, IDs, orders and dead letters as running one handler after the
// other, whatever handlers do.
func TestInterleaveChangesNoResult(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		// each takes a third of a second
		_ = flag.Set("rapid.checks", "12")
		t.Cleanup(func() { _ = flag.Set("rapid.checks", checks.DefValue) })
	}
	for name, dsn := range map[string]func(*testing.T) string{
		"postgres15": func(t *testing.T) string { return testdb.Schema(t, testdb.Postgres(t)) },
		"postgres18": func(t *testing.T) string { return testdb.Schema(t, testdb.Postgres18(t)) },
		"pgbouncer": func(t *testing.T) string {
			pooled, _ := testdb.PgBouncer(t)
			return pooled + "&default_query_exec_mode=exec"
		},
	} {
		t.Run(name, func(t *testing.T) { compareStages(t, newStage(t, dsn(t)), newStage(t, dsn(t))) })
	}
}

func compareStages(t *testing.T, plain, waves *stage) {
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		prefix := fmt.Sprintf("run%d.", runs)
		scripts, keys := map[string]*script{}, map[string]string{}
		faulty := rapid.IntRange(0, 3).Draw(rt, "faulty") // of 3
		var msgs []consumer.Message
		for i := range rapid.IntRange(1, 25).Draw(rt, "messages") {
			if what := rapid.IntRange(0, 9).Draw(rt, "what"); what < 2 && i > 0 { // a duplicate, or other content
				m := msgs[rapid.IntRange(0, i-1).Draw(rt, "copy of")]
				if what == 1 && m.OrderingKey != "" { // without an ordering key either content may be handled first
					m.Payload = []byte("other")
				}
				msgs = append(msgs, m)
				continue
			}
			id := fmt.Sprint(prefix, i)
			k := &script{
				steps: rapid.SliceOfN(rapid.SampledFrom(scriptSteps), 0, 5).Draw(rt, "steps"),
				times: rapid.SampledFrom([]int{1, 1000}).Draw(rt, "times"),
			}
			if rapid.IntRange(1, 3).Draw(rt, "fails") <= faulty {
				k.fault = rapid.SampledFrom(scriptFaults).Draw(rt, "fault")
			}
			if slices.Contains([]string{"cut", "ctx", "syntax"}, k.fault) {
				k.times = 1 // such faults count as the database's, and park nothing
			}
			scripts[id], keys[id] = k, rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "key")
			msgs = append(msgs, consumer.Message{
				ID: id, OrderingKey: keys[id], Payload: []byte("x"), Time: time.Now(),
				Attempt: 1, Position: fmt.Sprint(i),
			})
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 25), 1, 5).Draw(rt, "sizes")
		var results []stageResult
		for i, s := range []*stage{plain, waves} {
			s.begin(rt, prefix, i == 1, scripts)
			results = append(results, s.run(t, rt, prefix, msgs, sizes, keys))
			s.c.Close()
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			rt.Fatalf("Interleave changes a result (-without +with):\n%s", diff)
		}
	})
	if plain.atMost != 1 || waves.atMost < 2 {
		t.Errorf("%d handlers ran at once, %d without Interleave: this has shown little", waves.atMost, plain.atMost)
	}
}
