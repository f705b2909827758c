package pgxstore_test

import (
	"context"
	"errors"
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

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

type queueFunc = func(ctx context.Context, b *pgx.Batch, m *consumer.Message) error

// queueTest is a consumer with Pipeline that counts its transactions.
type queueTest struct {
	*handlerTest
	*consumer.Consumer[pgx.Tx]
	transactions int
}

// counting is the store of a queueTest.
type counting struct {
	*pgxstore.Store
	n *int
}

func (c counting) InTx(ctx context.Context, recs []dedup.Record, fn func(pgx.Tx, []dedup.Claim) error) error {
	if len(recs) > 0 { // otherwise it parks a message
		*c.n++
	}
	return c.Store.InTx(ctx, recs, fn)
}

func newQueueTest(t *testing.T, server string, cfg consumer.Config[pgx.Tx]) *queueTest {
	t.Helper()
	q := &queueTest{handlerTest: newHandlerTest(t, server, pgxstore.Config{})}
	cfg.Name, cfg.Store, cfg.Key, cfg.Logger = "billing", counting{q.store, &q.transactions}, consumer.MessageID,
		slog.New(slog.DiscardHandler)
	cfg.Backoff = func(int) time.Duration { return 0 }
	cfg.ParkLimit = consumer.ParkLimit{Unlimited: true}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	q.Consumer = c
	return q
}

// queued returns n messages with IDs that begin with prefix.
func queued(prefix string, n int) []*consumer.Message {
	msgs := make([]*consumer.Message, n)
	for i := range msgs {
		msgs[i] = &consumer.Message{
			ID: fmt.Sprintf("%s %04d", prefix, i), Payload: []byte("x"), Time: time.Now(),
			Attempt: 1,
		}
	}
	return msgs
}

// parkedIDs returns the IDs of the dead letters, and the cause of the last one.
func (q *queueTest) parkedIDs() (ids []string, text string) {
	q.Helper()
	found, err := q.DeadLetters(q.Context(), consumer.DeadLetterFilter{Limit: 1000})
	if err != nil {
		q.Fatal(err)
	}
	for _, l := range found {
		ids, text = append(ids, l.Record.Key.ID), l.Error
		if err := q.Discard(q.Context(), l); err != nil {
			q.Fatal(err)
		}
	}
	slices.Sort(ids)
	return ids, text
}

const insertEffect = `INSERT INTO effects (name) VALUES ($1)`

// badSQL is a fault that counts as the database's: a deployment may have caused it. So it parks nothing.
const badSQL = "SQL that is none"

// queueFaults has the functions for Pipeline that fail, by what they do wrong.
var queueFaults = map[string]queueFunc{
	"an error": func(context.Context, *pgx.Batch,
		*consumer.Message,
	) error {
		return errors.New("no")
	},
	"a panic": func(context.Context, *pgx.Batch, *consumer.Message) error { panic("no") },
	"Goexit": func(context.Context, *pgx.Batch,
		*consumer.Message,
	) error {
		runtime.Goexit()
		return nil
	},
	"a statement":       queues(`SELECT 1/0`, nil),
	"a later statement": queues(`SELECT 1/(5-g) FROM generate_series(1, 9) AS g`, nil),
	"a statement, Exec": queues(`SELECT 1/0`,
		func(q *pgx.QueuedQuery) { q.Exec(func(pgconn.CommandTag) error { return nil }) }),
	"a statement, rows ignored": queues(`SELECT 1/0`,
		func(q *pgx.QueuedQuery) { q.Query(func(pgx.Rows) error { return nil }) }),
	"a statement, row ignored": queues(`SELECT 1/0`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(pgx.Row) error { return nil }) }),
	"a statement, Scan ignored": queues(`SELECT 1/0`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(r pgx.Row) error { var n int; _ = r.Scan(&n); return nil }) }),
	"a Scan of the wrong type": queues(`SELECT 'x'`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(r pgx.Row) error { var n int; _ = r.Scan(&n); return nil }) }),
	"no rows": queues(`SELECT 1 WHERE false`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(r pgx.Row) error { var n int; return r.Scan(&n) }) }),
	"Exec's callback": queues(`SELECT 1`,
		func(q *pgx.QueuedQuery) { q.Exec(func(pgconn.CommandTag) error { return errors.New("no") }) }),
	"Query's callback": queues(`SELECT 1`,
		func(q *pgx.QueuedQuery) { q.Query(func(pgx.Rows) error { return errors.New("no") }) }),
	"QueryRow's callback": queues(`SELECT 1`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(pgx.Row) error { return errors.New("no") }) }),
	"a callback that panics": queues(`SELECT 1`,
		func(q *pgx.QueuedQuery) { q.QueryRow(func(pgx.Row) error { panic("no") }) }),
	"a callback that calls Goexit": queues(`SELECT 1`,
		func(q *pgx.QueuedQuery) { q.Query(func(pgx.Rows) error { runtime.Goexit(); return nil }) }),
	"a callback that reads on": queues(`SELECT 1`, func(q *pgx.QueuedQuery) {
		q.Fn = func(r pgx.BatchResults) error { _, _ = r.Exec(); _, err := r.Exec(); return err }
	}),
	badSQL:                          queues(`SELEC 1`, nil),
	"an argument of the wrong type": queues(`SELECT $1::int`, nil, "x"),
	"too few arguments":             queues(`SELECT $1::int`, nil),
	"a name without an argument":    queues(`SELECT @a::int`, nil, pgx.StrictNamedArgs{"b": 1}),
	"a callback of Exec that queues": queuesLate(func(q *pgx.QueuedQuery, late func()) {
		q.Exec(func(pgconn.CommandTag) error { late(); return nil })
	}),
	"a callback of Query that queues": queuesLate(func(q *pgx.QueuedQuery, late func()) {
		q.Query(func(pgx.Rows) error { late(); return nil })
	}),
	"a callback of QueryRow that queues": queuesLate(func(q *pgx.QueuedQuery, late func()) {
		q.QueryRow(func(r pgx.Row) error { var n int; late(); return r.Scan(&n) })
	}),
	"COMMIT":                        queues(`COMMIT`, nil),
	"ROLLBACK":                      queues(`ROLLBACK`, nil),
	"several statements":            queues(`SELECT 1; COMMIT`, nil),
	"another's savepoint":           queues(`ROLLBACK TO before`, nil),
	"another's savepoint, released": queues(`RELEASE before`, nil),
}

// queuesLate returns a function that queues a statement, and another one in its callback, which pgx never sends.
func queuesLate(callback func(q *pgx.QueuedQuery, late func())) queueFunc {
	return func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
		callback(b.Queue(`SELECT 1`), func() { b.Queue(insertEffect, m.ID+" late") })
		return nil
	}
}

// queues returns a function that queues sql.
func queues(sql string, more func(*pgx.QueuedQuery), args ...any) queueFunc {
	return func(_ context.Context, b *pgx.Batch, _ *consumer.Message) error {
		query := b.Queue(sql, args...)
		if more != nil {
			more(query)
		}
		return nil
	}
}

// A message that fails is tried alone. The other messages are committed, those before it together and those after it
// too.
func TestPipelineNamesTheMessageThatFails(t *testing.T) {
	const n = 8
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			poison, do := -1, queueFunc(nil)
			q := newQueueTest(t, testdb.Postgres(t)+"&default_query_exec_mode="+mode, consumer.Config[pgx.Tx]{
				MaxAttempts: 1,
				HandleBatch: pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, m *consumer.Message) error {
					b.Queue(insertEffect, m.ID)
					b.Queue(`SELECT g FROM generate_series(1, 100) AS g`) // nobody reads it
					if strings.HasSuffix(m.ID, fmt.Sprintf("%04d", poison)) {
						return do(ctx, b, m)
					}
					b.Queue(`SELECT $1::int`, 5)
					if strings.HasSuffix(m.ID, "0001") {
						b.Queue(`SAVEPOINT before`)
					}
					return nil
				}),
			})
			// the others do not say which statement they could not send
			pipelined := mode != "exec" && mode != "simple_protocol"
			places := []int{n / 2}
			if mode == "cache_statement" {
				places = []int{0, n / 2, n - 1}
			}
			for name, fault := range queueFaults {
				// the server's class for it is a lost connection
				fails := name == badSQL || mode == "exec" && name == "too few arguments"
				for _, poison = range places {
					do = fault
					prefix := fmt.Sprint(name, " ", poison)
					msgs := queued(prefix, n)
					q.transactions = 0
					for i, err := range q.ProcessBatch(t.Context(), msgs) {
						if err != nil && !(fails && i == poison) {
							t.Errorf("%s: message %d: %v", prefix, i, err)
						}
					}
					transactions := q.transactions
					var want []string
					for i, m := range msgs {
						if i != poison {
							want = append(want, m.ID)
						}
					}
					got := q.db.strings(t, `SELECT name FROM effects WHERE starts_with(name, $1) ORDER BY name`,
						prefix+" ")
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: effects (-want +got):\n%s", prefix, diff)
					}
					want = []string{msgs[poison].ID}
					if fails {
						want = nil
					}
					ids, cause := q.parkedIDs()
					if diff := cmp.Diff(want, ids); diff != "" {
						t.Errorf("%s: parked (-want +got):\n%s", prefix, diff)
					}
					// One that fails, two for the poison, which is parked, and one for each of the parts. All messages
					// have queued the SQL of these two, so halving finds the poison: one more for each half.
					most := 5
					if name == "an argument of the wrong type" || name == "too few arguments" {
						most = 9
					}
					if pipelined && transactions > most {
						t.Errorf("%s: %d transactions, want at most %d; %s", prefix, transactions, most, cause)
					}
				}
			}
		})
	}
}

// The statements of all messages take one round trip.
func TestPipelineTakesOneRoundTrip(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 2)
	store, trips := db.traced(t)
	read := 0
	c := newConsumer(t, store, consumer.Config[pgx.Tx]{
		Name: "billing",
		HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
			if strings.HasSuffix(m.ID, "7") {
				return nil // it has nothing to do
			}
			b.Queue(insertEffect, m.ID)
			b.Queue(`SELECT count(*) FROM effects WHERE name = $1`,
				m.ID).QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
			b.Queue(`SELECT name FROM effects WHERE name = $1`, m.ID).Query(func(rows pgx.Rows) error {
				names, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if read += len(names); err == nil && names[0] != m.ID {
					t.Errorf("%s read %v", m.ID, names)
				}
				return err
			})
			return nil
		}),
	})
	for _, prefix := range []string{"first", "second"} { // the first batch registers, and prepares statements
		trips.take()
		for _, err := range c.ProcessBatch(t.Context(), queued(prefix, 20)) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	sent := trips.take()
	if len(sent) != 3 || strings.Count(sent[1], "insert into effects") != 18 ||
		strings.Count(sent[1], " + ") != 3*18-1 || sent[2] != "commit" {
		t.Errorf("%d round trips, want three: %q", len(sent), sent)
	}
	if read != 36 {
		t.Errorf("%d rows were read, want 36", read)
	}
	t.Run("nothing to send", func(t *testing.T) {
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{{ID: "7", Time: time.Now()}})[0]; err != nil {
			t.Error(err)
		}
		if sent := trips.take(); len(sent) != 2 {
			t.Errorf("round trips: %q", sent)
		}
	})
}

// A batch of 1,000 messages with large arguments and results does not block, and its statements run in the order of the
// messages.
func TestPipelineSendsLargeBatchesInOrder(t *testing.T) {
	const n = 1000
	large := strings.Repeat("x", 8<<10)
	got := 0
	q := newQueueTest(t, testdb.Postgres(t), consumer.Config[pgx.Tx]{
		HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
			b.Queue(insertEffect, m.ID)
			b.Queue(`SELECT $1::text || $1`, large).QueryRow(func(row pgx.Row) error {
				var s string
				err := row.Scan(&s)
				got += len(s)
				return err
			})
			b.Queue(`SELECT repeat('y', 10000)`)
			return nil
		}),
	})
	q.db.exec(t, `ALTER TABLE effects ADD place serial`)
	msgs := queued("large", n)
	for i, m := range msgs {
		m.OrderingKey = fmt.Sprint(i % 7)
	}
	for i, err := range q.ProcessBatch(t.Context(), msgs) {
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	names := q.db.strings(t, `SELECT name FROM effects ORDER BY place`)
	if !slices.IsSorted(names) || len(names) != n || q.transactions != 1 || got != 2*len(large)*n {
		t.Errorf("%d effects, in order %v, in %d transactions, and %d bytes of results", len(names),
			slices.IsSorted(names), q.transactions, got)
	}
}

// A message that takes too long fails alone. The end of ctx counts no attempt.
func TestPipelineEndsWithItsContext(t *testing.T) {
	handle := pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
		b.Queue(insertEffect, m.ID)
		if strings.HasSuffix(m.ID, "0002") {
			b.Queue(`SELECT pg_sleep(60)`)
		}
		return nil
	})
	t.Run("HandlerTimeout", func(t *testing.T) {
		t.Parallel()
		q := newQueueTest(t, testdb.Postgres(t), consumer.Config[pgx.Tx]{
			HandleBatch: handle, MaxAttempts: 1,
			HandlerTimeout: time.Second,
		})
		for i, err := range q.ProcessBatch(t.Context(), queued("slow", 4)) {
			if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		ids, cause := q.parkedIDs()
		if n := q.count(`SELECT count(*) FROM effects`); n != 3 || !slices.Equal(ids, []string{"slow 0002"}) ||
			!strings.Contains(cause, "HandlerTimeout") {
			t.Errorf("%d effects, parked %q: %s", n, ids, cause)
		}
	})
	t.Run("ctx", func(t *testing.T) {
		t.Parallel()
		q := newQueueTest(t, testdb.Postgres(t), consumer.Config[pgx.Tx]{HandleBatch: handle, MaxAttempts: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i, err := range q.ProcessBatch(ctx, queued("slow", 4)) {
			if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held {
				t.Errorf("message %d: %v, want an uncounted RetryError", i, err)
			}
		}
		if n := q.count(`SELECT count(*) FROM effects`); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
}

// Each message of a batch may use savepoints under the same name.
func TestPipelineWithSavepoints(t *testing.T) {
	q := newQueueTest(t, testdb.Postgres18(t), consumer.Config[pgx.Tx]{
		HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
			b.Queue(insertEffect, m.ID)
			b.Queue(`SAVEPOINT mine`)
			b.Queue(insertEffect, m.ID+" undone")
			b.Queue(`ROLLBACK TO mine`)
			b.Queue(insertEffect, m.ID+" kept")
			return nil
		}),
	})
	for i, err := range q.ProcessBatch(t.Context(), queued("savepoints", 5)) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	all, undone := q.count(`SELECT count(*) FROM effects`),
		q.count(`SELECT count(*) FROM effects WHERE name LIKE '%undone'`)
	if all != 10 || undone != 0 || q.transactions != 1 {
		t.Errorf("%d effects, %d of them undone, in %d transactions", all, undone, q.transactions)
	}
}

func TestPipelineWithoutAFunction(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Pipeline accepts nil")
		}
	}()
	pgxstore.Pipeline(nil)
}

func TestPipelineHandler(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 4)
	consumertest.TestHandler(t, consumertest.HandlerTest[pgx.Tx]{
		Store: db.store,
		New: func(store dedup.Store[pgx.Tx]) (*consumer.Consumer[pgx.Tx], error) {
			return consumer.New(consumer.Config[pgx.Tx]{
				Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
				HandleBatch: pgxstore.Pipeline(queueEffects),
			})
		},
		Message: func(n int) *consumer.Message {
			return &consumer.Message{ID: fmt.Sprint(n), Payload: []byte("x"), Time: time.Now(), Attempt: 1}
		},
		Effects: func(ctx context.Context) (n int, err error) {
			err = db.pool.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n)
			return n, err
		},
		Each: 2,
	})
}

func queueEffects(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
	b.Queue(insertEffect, m.ID)
	b.Queue(insertEffect, m.ID+" again")
	return nil
}
