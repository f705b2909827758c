package pgxstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// task is what a handler does for one message. Pipeline and a plain Handle do the same.
type task struct {
	statements int    // how many effects it has
	fault      string // how it fails; empty: not
	times      int    // how often it fails; many: always
	enqueues   bool
	runs       int
}

// taskFaults are in the middle of a task's statements.
var taskFaults = []string{
	"", "", "", "", "", "error", "permanent", "panic", "goexit", "statement", "callback",
	"commit",
}

// statement is one statement of a task, and what reads its result.
type statement struct {
	sql  string
	args []any
	read func(pgconn.CommandTag) error
}

// do calls send for each statement.
func (k *task) do(id string, send func(statement) error) error {
	k.runs++
	// these park at once, and Pipeline calls a function more often
	fails := k.runs <= k.times || k.fault == "permanent" || k.fault == "commit"
	for i := range k.statements + 1 {
		if fails && i == k.statements/2 {
			switch k.fault {
			case "error":
				return errors.New("error of the handler")
			case "permanent":
				return consumer.Permanent(errors.New("permanent error"))
			case "panic":
				panic("panic of the handler")
			case "goexit":
				runtime.Goexit()
			case "statement":
				if err := send(statement{sql: `SELECT 1/0`}); err != nil {
					return err
				}
			case "commit":
				if err := send(statement{sql: `COMMIT`}); err != nil {
					return err
				}
			case "callback":
				if err := send(statement{sql: `SELECT 1`, read: func(pgconn.CommandTag) error { return errors.New("error of the callback") }}); err != nil {
					return err
				}
			}
		}
		if i < k.statements {
			if err := send(statement{sql: insertEffect, args: []any{fmt.Sprint(id, " ", i)}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tasks is a consumer in a schema of its own.
type tasks struct {
	*outboxDB
	how   string
	tasks map[string]*task
	c     *consumer.Consumer[pgx.Tx]
}

func newTasks(t *testing.T, how string) *tasks {
	w := &tasks{outboxDB: newOutboxDB(t, testdb.Postgres18, 3), how: how}
	w.exec(t, `ALTER TABLE effects ADD place serial`)
	return w
}

func (w *tasks) enqueue(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	if !w.tasks[m.ID].enqueues {
		return nil
	}
	return w.store.Enqueue(ctx, tx, outbox.Message{Topic: "done", OrderingKey: m.OrderingKey, Payload: []byte(m.ID)})
}

func (w *tasks) begin(t *rapid.T, name string, kinds map[string]task) {
	w.tasks = map[string]*task{}
	for id, k := range kinds {
		w.tasks[id] = &k
	}
	cfg := consumer.Config[pgx.Tx]{
		Name: name, Store: w.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler), MaxAttempts: 3,
		Backoff: func(int) time.Duration { return 0 }, ParkLimit: consumer.ParkLimit{Unlimited: true},
	}
	if w.how == "Handle" {
		cfg.Handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if err := w.enqueue(ctx, tx, m); err != nil {
				return err
			}
			return w.tasks[m.ID].do(m.ID, func(s statement) error {
				tag, err := tx.Exec(ctx, s.sql, s.args...)
				if err == nil && s.read != nil {
					err = s.read(tag)
				}
				return err
			})
		}
	} else {
		cfg.ClaimLate = w.how == "ClaimLate"
		cfg.HandleBatch = func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			return pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, m *consumer.Message) error {
				if err := w.enqueue(ctx, tx, m); err != nil {
					return err
				}
				return w.tasks[m.ID].do(m.ID, func(s statement) error {
					query := b.Queue(s.sql, s.args...)
					if s.read != nil {
						query.Exec(s.read)
					}
					return nil
				})
			})(ctx, tx, msgs)
		}
	}
	var err error
	if w.c, err = consumer.New(cfg); err != nil {
		t.Fatal(err)
	}
}

// deliver delivers msgs until all are acknowledged.
func (w *tasks) deliver(t *rapid.T, msgs []consumer.Message, sizes []int) {
	var queue []*consumer.Message
	for _, m := range msgs {
		queue = append(queue, &m)
	}
	for round := 0; len(queue) > 0; round++ {
		if round == 200 {
			t.Fatalf("%s: %d messages are never acknowledged", w.how, len(queue))
		}
		n := min(sizes[round%len(sizes)], len(queue))
		var again []*consumer.Message
		for i, err := range w.c.ProcessBatch(context.Background(), queue[:n]) {
			retry, ok := errors.AsType[*consumer.RetryError](err)
			switch {
			case err == nil:
				continue
			case !ok:
				t.Fatalf("%s: %s is rejected: %v", w.how, queue[i].ID, err)
			case !retry.Held:
				queue[i].Attempt++
			}
			again = append(again, queue[i])
		}
		queue = append(again, queue[n:]...)
	}
}

// taskResult is what a run has left behind.
type taskResult struct {
	Effects, Published []string
	Orders             map[string][]string // of effects, by ordering key
	Letters            []string
}

func (w *tasks) outcome(t *testing.T, prefix string, keys map[string]string) (o taskResult) {
	o.Effects = w.strings(t, `SELECT name FROM effects WHERE starts_with(name, $1) ORDER BY place`, prefix)
	o.Orders = map[string][]string{}
	for _, name := range o.Effects {
		key := keys[name[:strings.LastIndex(name, " ")]]
		if key != "" {
			o.Orders[key] = append(o.Orders[key], name)
		}
	}
	slices.Sort(o.Effects)
	o.Published = w.strings(t, `SELECT id::text || convert_from(payload, 'UTF8') FROM outbox_messages WHERE starts_with(convert_from(payload, 'UTF8'), $1) ORDER BY 1`, prefix)
	letters, err := w.c.DeadLetters(context.Background(), consumer.DeadLetterFilter{Consumer: prefix, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		cause, _, _ := strings.Cut(l.Error, "\n")
		if strings.Contains(cause, "ended its goroutine") {
			cause = "goexit"
		}
		o.Letters = append(o.Letters, fmt.Sprint(l.Record.Key.ID, " ", string(l.Message.Payload), " ", l.Cause,
			" ", cause))
	}
	slices.Sort(o.Letters)
	return o
}

// Pipeline, with and without ClaimLate, leaves the same effects, outbox messages, IDs, orders and dead letters as a
// plain Handle, whatever handlers do.
func TestPipelineDoesWhatAHandlerDoes(t *testing.T) {
	plain, queue, late := newTasks(t, "Handle"), newTasks(t, "Pipeline"), newTasks(t, "ClaimLate")
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		// each takes a quarter of a second
		_ = flag.Set("rapid.checks", "30")
		t.Cleanup(func() { _ = flag.Set("rapid.checks", checks.DefValue) })
	}
	runs, parked := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		prefix := fmt.Sprintf("run%d.", runs)
		kinds, keys := map[string]task{}, map[string]string{}
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
			kinds[id] = task{
				statements: rapid.IntRange(0, 3).Draw(rt, "statements"),
				fault:      rapid.SampledFrom(taskFaults).Draw(rt, "fault"),
				times:      rapid.SampledFrom([]int{1, 1000}).Draw(rt, "times"),
				enqueues:   rapid.Bool().Draw(rt, "enqueues"),
			}
			keys[id] = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "key")
			msgs = append(msgs, consumer.Message{
				ID: id, OrderingKey: keys[id], Payload: []byte("x"), Time: time.Now(),
				Attempt: 1, Position: fmt.Sprint(i),
			})
		}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 25)), 1, 5).Draw(rt, "sizes")
		var results []taskResult
		for _, w := range []*tasks{plain, queue, late} {
			w.begin(rt, prefix, kinds)
			w.deliver(rt, msgs, sizes)
			results = append(results, w.outcome(t, prefix, keys))
			w.c.Close()
		}
		parked += len(results[0].Letters)
		for i, w := range []*tasks{queue, late} {
			if diff := cmp.Diff(results[0], results[i+1]); diff != "" {
				rt.Fatalf("%s differs from Handle (-Handle +%[1]s):\n%s", w.how, diff)
			}
		}
	})
	if parked == 0 {
		t.Error("no message was parked: this has shown little")
	}
}
