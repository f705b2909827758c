package pgxstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

const (
	rounds    = 17
	slot      = 300 * time.Millisecond
	batchSize = 100
)

// BenchmarkWays compares ways of handling many messages. The gates are 15 % below the targets.
//
//	bare    the effect's transaction without any deduplication: 3 round trips
//	hand    BEGIN, claim, effect, COMMIT, the way people write it: 4 round trips
//	queue   a HandleBatch of Queue
func BenchmarkWays(b *testing.B) {
	compare(b, rounds, slot, []comparison{
		{"hand", "bare", [2]float64{}},
		{"batch", "hand", [2]float64{4, 3.5}},
		{"queue", "hand", [2]float64{12, 0}},
		{"batchset", "hand", [2]float64{20, 17}},
		{"batchdup", "hand", [2]float64{}},
	})
}

// BenchmarkSingle compares ways of handling one message. The gates are 15 % below the targets: .80 for process, and 3 for duplicates.
//
//	least         BEGIN and the simplest claim in one round trip, effect, COMMIT, by hand: nothing that claims first can be faster
//	chained       a message in a transaction of its own, whose claim travels with the COMMIT of the one before: Config.MaxBatch 1
//	duplicate     a message that was handled before, in a run of such messages, and the broker does not say so
//	redelivered   a message that was handled before, with Attempt 2
//	retried       a new message with Attempt 2
//	leastdup      one SELECT by hand: nothing that asks the database can be faster
func BenchmarkSingle(b *testing.B) {
	compare(b, 5*rounds, slot/5, []comparison{
		{"hand", "bare", [2]float64{}},
		{"least", "bare", [2]float64{}},
		{"process", "bare", [2]float64{.80, .80}},
		{"chained", "bare", [2]float64{}},
		{"process", "least", [2]float64{}},
		{"process", "hand", [2]float64{}},
		{"retried", "process", [2]float64{}},
		{"duplicate", "hand", [2]float64{3, 3}},
		{"redelivered", "hand", [2]float64{3, 3}},
		{"leastdup", "hand", [2]float64{}},
	})
}

// comparison is the ratio of a way's rate to the base's.
type comparison struct {
	way, base string
	want      [2]float64 // at 1 and 8 connections; 0: no target
}

// compare lets the ways take turns in short slots of one run, because the machine's speed changes from minute to minute. Each round
// divides a way's result by the base's of the same round, and the median over the rounds is reported.
func compare(b *testing.B, rounds int, slot time.Duration, comparisons []comparison) {
	for _, conns := range []int{1, 8} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			w := newWays(b, conns)
			w.ways = slices.DeleteFunc(w.ways, func(way way) bool {
				return !slices.ContainsFunc(comparisons, func(c comparison) bool { return c.way == way.name || c.base == way.name })
			})
			rates := map[string][]float64{}
			for range rounds {
				for _, i := range rand.Perm(len(w.ways)) {
					way := w.ways[i]
					rates[way.name] = append(rates[way.name], w.run(b, way, conns, slot))
				}
			}
			b.ReportMetric(0, "ns/op") // the time per op means nothing here
			b.ReportMetric(median(rates["bare"]), "bare/s")
			b.ReportMetric(median(rates["hand"]), "hand/s")
			for _, c := range comparisons {
				ratios := make([]float64, rounds)
				for i := range ratios {
					ratios[i] = rates[c.way][i] / rates[c.base][i]
				}
				got, want := median(ratios), c.want[min(conns/8, 1)]
				b.ReportMetric(got, c.way+"/"+c.base)
				b.Logf("%12s %.2f x %s", c.way, got, c.base) // metrics are not printed if a gate fails
				if got < .85*want {
					b.Errorf("%s is %.2f x %s at %d connections: want %.2f, and never less than %.2f", c.way, got, c.base, conns, want, .85*want)
				}
			}
		})
	}
}

// way handles some new messages, on one connection at a time, and returns their number.
type way struct {
	name string
	do   func(ctx context.Context) (n int, err error)
}

type ways struct {
	pool *pgxpool.Pool
	ways []way
	next atomic.Int64
}

func newWays(b *testing.B, conns int) *ways {
	pool := testPool(b, testdb.Schema(b, testdb.Postgres(b)), conns)
	ctx := b.Context()
	must := func(sql string) {
		if _, err := pool.Exec(ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		b.Fatal(err)
	}
	must(`CREATE TABLE ledger (id text NOT NULL, amount bigint NOT NULL)`)
	must(`CREATE TABLE hand_processed (consumer text, id text, processed_at timestamptz DEFAULT now(), PRIMARY KEY (consumer, id))`)
	store := newStore(b, pgxstore.Config{Pool: pool})

	const effect = `INSERT INTO ledger (id, amount) VALUES ($1, $2)`
	one := newConsumer(b, store, consumer.Config[pgx.Tx]{
		Name: "one",
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			_, err := tx.Exec(ctx, effect, m.ID, 1)
			return err
		},
	})
	alone := newConsumer(b, store, consumer.Config[pgx.Tx]{
		Name: "alone", MaxBatch: 1,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			_, err := tx.Exec(ctx, effect, m.ID, 1)
			return err
		},
	})
	set := newConsumer(b, store, consumer.Config[pgx.Tx]{
		Name: "set",
		HandleBatch: func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
			ids := make([]string, len(msgs))
			for i, m := range msgs {
				ids[i] = m.ID
			}
			_, err := tx.Exec(ctx, `INSERT INTO ledger (id, amount) SELECT id, 1 FROM unnest($1::text[]) AS id`, ids)
			return err
		},
	})
	queue := newConsumer(b, store, consumer.Config[pgx.Tx]{
		Name: "queue",
		HandleBatch: pgxstore.Queue(func(_ context.Context, batch *pgx.Batch, m *consumer.Message) error {
			batch.Queue(effect, m.ID, 1)
			return nil
		}),
	})
	w := &ways{pool: pool}
	old := w.messages(batchSize)
	for _, err := range one.ProcessBatch(ctx, old) {
		if err != nil {
			b.Fatal(err)
		}
	}
	batch := func(c *consumer.Consumer[pgx.Tx], msgs []*consumer.Message) (int, error) {
		for _, err := range c.ProcessBatch(ctx, msgs) {
			if err != nil {
				return 0, err
			}
		}
		return len(msgs), nil
	}
	w.ways = []way{
		{"bare", func(ctx context.Context) (int, error) {
			return 1, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, effect, w.id(), 1)
				return err
			})
		}},
		{"hand", func(ctx context.Context) (int, error) {
			return 1, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				id := w.id()
				tag, err := tx.Exec(ctx, `INSERT INTO hand_processed (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, "hand", id)
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				_, err = tx.Exec(ctx, effect, id, 1)
				return err
			})
		}},
		{"least", func(ctx context.Context) (int, error) {
			id := w.id()
			return 1, pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
				b := &pgx.Batch{}
				b.BeginTx(pgx.TxOptions{})
				b.Queue(`INSERT INTO hand_processed (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, "hand", id)
				results := conn.SendBatch(ctx, b)
				tx := results.Tx()
				if err := results.Close(); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, effect, id, 1); err != nil {
					return err
				}
				return tx.Commit(ctx)
			})
		}},
		{"leastdup", func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, `SELECT count(*) FROM hand_processed WHERE consumer = $1 AND id = $2`, "hand", "order-1").Scan(&n)
			return 1, err
		}},
		{"process", func(ctx context.Context) (int, error) { return 1, one.Process(ctx, w.messages(1)[0]) }},
		{"chained", func(context.Context) (int, error) { return batch(alone, w.messages(batchSize)) }},
		{"batch", func(context.Context) (int, error) { return batch(one, w.messages(batchSize)) }},
		{"queue", func(context.Context) (int, error) { return batch(queue, w.messages(batchSize)) }},
		{"batchset", func(context.Context) (int, error) { return batch(set, w.messages(batchSize)) }},
		{"duplicate", func(ctx context.Context) (int, error) { return 1, one.Process(ctx, old[rand.IntN(len(old))]) }},
		{"redelivered", func(ctx context.Context) (int, error) {
			return 1, one.Process(ctx, redelivered(old[rand.IntN(len(old))]))
		}},
		{"retried", func(ctx context.Context) (int, error) { return 1, one.Process(ctx, redelivered(w.messages(1)[0])) }},
		{"batchdup", func(context.Context) (int, error) { return batch(one, old) }},
	}
	return w
}

func (w *ways) id() string { return "order-" + strconv.FormatInt(1_000_000_000+w.next.Add(1), 10) }

func (w *ways) messages(n int) []*consumer.Message {
	msgs := make([]*consumer.Message, n)
	for i := range msgs {
		id := w.id()
		msgs[i] = &consumer.Message{ID: id, Payload: []byte(`{"order_id":"` + id + `","amount":1}`), Time: time.Now(), Attempt: 1}
	}
	return msgs
}

func redelivered(m *consumer.Message) *consumer.Message {
	second := *m
	second.Attempt = 2
	return &second
}

// run returns the number of messages per second.
func (w *ways) run(b *testing.B, way way, conns int, slot time.Duration) float64 {
	var (
		wg    sync.WaitGroup
		total atomic.Int64
		start = time.Now()
	)
	for range conns {
		wg.Go(func() {
			for time.Since(start) < slot {
				n, err := way.do(b.Context())
				if err != nil {
					b.Errorf("%s: %v", way.name, err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

func newConsumer(tb testing.TB, store *pgxstore.Store, cfg consumer.Config[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	tb.Helper()
	cfg.Store, cfg.Key = store, consumer.MessageID
	c, err := consumer.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
