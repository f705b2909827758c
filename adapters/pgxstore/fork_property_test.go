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
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// script is what a handler does for one message.
type script struct {
	steps []string
	fault string // in the middle of the steps; empty: none
	times int    // how often it fails; many: always

	mu   sync.Mutex
	runs int
}

// scriptSteps are what handlers do. Those that change the counter must not disturb each other.
var scriptSteps = []string{
	"insert", "insert", "insert", "read", "row", "batch", "enqueue", "enqueue", "add", "for update", "lock keys", "advisory lock",
	"savepoint", "savepoint undone", "text savepoint undone", "copy", "conn", "set local", "semaphore", "pause", "named",
}

var scriptFaults = []string{
	"", "", "", "", "", "", "error", "permanent", "panic", "goexit", "statement", "swallowed", "commit", "rows left open", "busy", "ctx", "cut", "argument", "syntax",
}

// stage is a consumer in a schema of its own, whose handlers follow scripts.
type stage struct {
	*outboxDB
	scripts   map[string]*script
	semaphore chan struct{}
	c         *consumer.Consumer[pgx.Tx]

	mu          sync.Mutex
	now, atMost int // handlers that run at the same time
}

func newStage(t *testing.T) *stage {
	s := &stage{outboxDB: newOutboxDB(t, testdb.Postgres18, 3), semaphore: make(chan struct{}, 1)}
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
		Backoff: func(int) time.Duration { return 0 }, ParkLimit: consumer.ParkLimit{Unlimited: true}, Interleave: interleave,
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

func (s *stage) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.atMost = max(s.atMost, s.now)
}

func (s *stage) play(ctx context.Context, tx pgx.Tx, m *consumer.Message, counter string) error {
	k := s.scripts[m.ID]
	k.mu.Lock()
	k.runs++
	fails := k.runs <= k.times || k.fault == "permanent" || k.fault == "commit"
	k.mu.Unlock()
	for i, step := range k.steps {
		if fails && i == len(k.steps)/2 {
			if err := fault(ctx, tx, k.fault); err != nil {
				return err
			}
		}
		if err := s.step(ctx, tx, m, step, fmt.Sprint(m.ID, " ", i), counter); err != nil {
			return err
		}
	}
	return nil
}

// fault fails as name says. Some faults return nil, and the transaction must fail all the same.
func fault(ctx context.Context, tx pgx.Tx, name string) error {
	switch name {
	case "error":
		return errors.New("error of the handler")
	case "permanent":
		return consumer.Permanent(errors.New("permanent error"))
	case "panic":
		panic("panic of the handler")
	case "goexit":
		runtime.Goexit()
	case "statement":
		_, err := tx.Exec(ctx, `SELECT 1/$1::int`, 0)
		return err
	case "swallowed":
		_, _ = tx.Exec(ctx, `SELECT 1/$1::int`, 0)
	case "argument":
		_, err := tx.Exec(ctx, `SELECT $1::int`, "x")
		return err
	case "syntax":
		_, err := tx.Exec(ctx, `SELEC $1`, 1)
		return err
	case "commit":
		_, err := tx.Exec(ctx, `COMMIT`)
		return err
	case "rows left open":
		_, _ = tx.Query(ctx, `SELECT generate_series(1, $1::int)`, 3) //nolint:sqlclosecheck // the fault itself
	case "busy":
		rows, _ := tx.Query(ctx, `SELECT generate_series(1, $1::int)`, 3)
		defer rows.Close()
		_, err := tx.Exec(ctx, insertEffect, "while rows are open")
		if err != nil {
			return errors.New("busy")
		}
	case "ctx":
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := tx.Exec(short, `SELECT pg_sleep($1)`, 10); err != nil {
			return errors.New("too slow")
		}
	case "cut":
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
		return err
	}
	return nil
}

func (s *stage) step(ctx context.Context, tx pgx.Tx, m *consumer.Message, step, name, counter string) error {
	insert := func(tx pgx.Tx, name string) error {
		_, err := tx.Exec(ctx, insertEffect, name)
		return err
	}
	// add changes the counter in a way that another handler must not disturb.
	add := func() error {
		var n int
		if err := tx.QueryRow(ctx, `SELECT n FROM counters WHERE name = $1`, counter).Scan(&n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE counters SET n = $2 WHERE name = $1`, counter, n+1)
		return err
	}
	switch step {
	case "insert":
		return insert(tx, name)
	case "named":
		_, err := tx.Exec(ctx, `INSERT INTO effects (name) VALUES (@name)`, pgx.NamedArgs{"name": name})
		return err
	case "read":
		rows, _ := tx.Query(ctx, `SELECT place, name FROM effects WHERE starts_with(name, $1) ORDER BY name`, m.ID+" ")
		type row struct {
			Place int
			Name  string
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
		if err != nil {
			return err
		}
		for _, r := range all {
			if !strings.HasPrefix(r.Name, m.ID+" ") {
				return fmt.Errorf("read %q", r.Name)
			}
		}
		return insert(tx, fmt.Sprint(name, " read ", len(all)))
	case "row":
		var same string
		if err := tx.QueryRow(ctx, `SELECT $1::text || ' row'`, name).Scan(&same); err != nil {
			return err
		}
		return insert(tx, same)
	case "batch":
		b := &pgx.Batch{}
		b.Queue(insertEffect, name+" in a batch")
		count := 0
		b.Queue(`SELECT count(*) FROM effects WHERE name = $1`, name+" in a batch").QueryRow(func(r pgx.Row) error { return r.Scan(&count) })
		b.Queue(insertEffect, name+" too").Exec(func(tag pgconn.CommandTag) error {
			if !tag.Insert() {
				return errors.New(tag.String())
			}
			return nil
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return insert(tx, fmt.Sprint(name, " of ", count))
	case "enqueue":
		return s.store.Enqueue(ctx, tx, outbox.Message{Topic: "done", Key: m.Key, Payload: []byte(name)})
	case "add":
		_, err := tx.Exec(ctx, `UPDATE counters SET n = n + 1 WHERE name = $1`, counter)
		return err
	case "for update":
		if _, err := tx.Exec(ctx, `SELECT FROM counters WHERE name = $1 FOR UPDATE`, counter); err != nil {
			return err
		}
		return add()
	case "lock keys":
		if err := s.store.LockKeys(ctx, tx, dedup.Key{Consumer: "counters", ID: counter}); err != nil {
			return err
		}
		return add()
	case "advisory lock":
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, counter); err != nil {
			return err
		}
		return add()
	case "savepoint", "savepoint undone":
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := s.store.Enqueue(ctx, nested, outbox.Message{Topic: "done", Key: m.Key, Payload: []byte(name)}); err != nil {
			return err
		}
		if err := insert(nested, name); err != nil {
			return err
		}
		if step == "savepoint" {
			return nested.Commit(ctx)
		}
		return nested.Rollback(ctx)
	case "text savepoint undone":
		for _, sql := range []string{`SAVEPOINT mine`, `INSERT INTO effects (name) VALUES ('undone')`, `ROLLBACK TO mine`} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return insert(tx, name)
	case "copy":
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{name + " copied"}}))
		return err
	case "conn":
		_, err := tx.Conn().Exec(ctx, insertEffect, name+" by conn")
		return err
	case "set local":
		var found string
		if err := tx.QueryRow(ctx, `SELECT set_config('txonce.test', $1, true)`, name).Scan(&found); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT current_setting('txonce.test')`).Scan(&found); err != nil {
			return err
		}
		return insert(tx, found+" set")
	case "semaphore": // a mutex that the handlers share; it gives up, so that a deadlock does not last forever
		select {
		case s.semaphore <- struct{}{}:
			defer func() { <-s.semaphore }()
		case <-ctx.Done():
			return ctx.Err()
		}
		return insert(tx, name+" in a semaphore")
	case "pause":
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// run delivers msgs until all are acknowledged, and returns what they have left behind.
func (s *stage) run(t *testing.T, rt *rapid.T, prefix string, msgs []consumer.Message, sizes []int, keys map[string]string) stageResult {
	var queue []*consumer.Message
	for _, m := range msgs {
		queue = append(queue, &m)
	}
	s.exec(t, `INSERT INTO counters VALUES ($1, 0)`, prefix)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for round := 0; len(queue) > 0; round++ {
		if round == 300 {
			rt.Fatalf("%d messages are never acknowledged, %s: %v", len(queue), queue[0].ID, s.c.ProcessBatch(ctx, queue)[0])
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
			case !retry.Uncounted:
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
		cause, _, _ := strings.Cut(l.Cause, "\n")
		if strings.Contains(cause, "ended its goroutine") {
			cause = "goexit"
		}
		o.Letters = append(o.Letters, fmt.Sprint(l.Record.Key.ID, " ", string(l.Message.Payload), " ", l.Reason, " ", cause))
	}
	slices.Sort(o.Letters)
	return o
}

// Interleave leaves the same effects, outbox messages, IDs, orders and dead letters as running one handler after the other, whatever
// handlers do.
func TestInterleaveChangesNoResult(t *testing.T) {
	plain, waves := newStage(t), newStage(t)
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue { // each takes half a second
		_ = flag.Set("rapid.checks", "30")
		t.Cleanup(func() { _ = flag.Set("rapid.checks", checks.DefValue) })
	}
	runs, parked := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		prefix := fmt.Sprintf("run%d.", runs)
		scripts, keys := map[string]*script{}, map[string]string{}
		faulty := rapid.IntRange(0, 3).Draw(rt, "faulty") // of 3
		var msgs []consumer.Message
		for i := range rapid.IntRange(1, 25).Draw(rt, "messages") {
			if what := rapid.IntRange(0, 9).Draw(rt, "what"); what < 2 && i > 0 { // a duplicate, or other content
				m := msgs[rapid.IntRange(0, i-1).Draw(rt, "copy of")]
				m.Payload = []byte([]string{"x", "other"}[what])
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
			msgs = append(msgs, consumer.Message{ID: id, Key: keys[id], Payload: []byte("x"), Time: time.Now(), Attempt: 1, Position: fmt.Sprint(i)})
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 25), 1, 5).Draw(rt, "sizes")
		var results []stageResult
		for i, s := range []*stage{plain, waves} {
			s.begin(rt, prefix, i == 1, scripts)
			results = append(results, s.run(t, rt, prefix, msgs, sizes, keys))
			s.c.Close()
		}
		parked += len(results[0].Letters)
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			rt.Fatalf("Interleave changes a result (-without +with):\n%s", diff)
		}
	})
	if parked == 0 || plain.atMost != 1 || waves.atMost < 5 {
		t.Errorf("%d messages were parked, and %d handlers ran side by side: this has shown little", parked, waves.atMost)
	}
}
