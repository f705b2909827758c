// Command strangers measures how long messages take from COMMIT to the broker while other messages wait in the outbox:
// those of a topic that does not exist, of a hot key, of keys that are retried at the same time. It prints percentiles,
// first without and then with the others.
//
//	go run ./internal/test/system/strangers -broker kafka -case topic -waiting 40000
//
// It needs PostgreSQL and the broker of make services-up. Figures of different machines, or of one that is busy, cannot
// be compared: compare the two lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

type options struct {
	broker, kind string
	waiting      int
	lasting      time.Duration
	rate         int
	verbose      bool
}

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "fake", "kafka, rabbitmq or fake")
	flag.StringVar(&o.kind, "case", "topic", "what waits: topic (of a missing topic), key (of one key, 20 ms a call), refused (each is refused), slow (of a topic that takes 2 s a call), shard (of one shard)")
	flag.IntVar(&o.waiting, "waiting", 40_000, "how many messages wait")
	flag.DurationVar(&o.lasting, "for", 30*time.Second, "how long the stream lasts")
	flag.IntVar(&o.rate, "rate", 50, "messages a second of the stream")
	flag.BoolVar(&o.verbose, "v", false, "print the relay's log")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "strangers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	for _, waiting := range []int{0, o.waiting} {
		took, lost, err := measure(ctx, o, waiting)
		if err != nil {
			return err
		}
		slices.Sort(took)
		at := func(p int) time.Duration { return took[(len(took)-1)*p/100].Round(100 * time.Microsecond) }
		fmt.Printf("%s %s, %6d wait: p50 %-8v p90 %-8v p99 %-8v max %-8v of %d (%d have not arrived)\n",
			o.broker, o.kind, waiting, at(50), at(90), at(99), at(100), len(took), lost)
	}
	return nil
}

// world is one measurement.
type world struct {
	options
	pool  *pgxpool.Pool
	store *pgxstore.Store
	name  string

	mu        sync.Mutex
	committed map[string]time.Time
	arrived   map[string]time.Time
	calls     atomic.Int64
}

func measure(ctx context.Context, o options, waiting int) (took []time.Duration, lost int, err error) {
	w := &world{
		options: o, name: fmt.Sprintf("strangers_%x", time.Now().UnixNano()), committed: map[string]time.Time{},
		arrived: map[string]time.Time{},
	}
	cfg, err := pgxpool.ParseConfig(os.Getenv("TXONCE_POSTGRES"))
	if err != nil {
		return nil, 0, err
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = w.name
	if w.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, 0, err
	}
	defer w.pool.Close()
	if err = pgxstore.Migrate(ctx, w.pool, w.name); err != nil {
		return nil, 0, err
	}
	defer func() {
		_, dropped := w.pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+w.name+" CASCADE")
		err = errors.Join(err, dropped)
	}()
	logger := slog.New(slog.DiscardHandler)
	if o.verbose {
		logger = slog.Default()
	}
	if w.store, err = pgxstore.New(pgxstore.Config{Pool: w.pool, Logger: logger}); err != nil {
		return nil, 0, err
	}
	publisher, missing, closeBroker, err := w.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer closeBroker()
	if err := w.fill(ctx, waiting, missing); err != nil {
		return nil, 0, err
	}
	r, err := relay.New(relay.Config{Queue: w.store, Publisher: publisher, Logger: logger})
	if err != nil {
		return nil, 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	err = w.stream(ctx)
	w.settleDown(ctx)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest, first := make([]time.Duration, int(o.lasting.Seconds())+60), w.committed["s0"]
	defer func() {
		if o.verbose {
			fmt.Println("\tslowest of each second:", slowest)
		}
	}()
	for id, at := range w.committed {
		if then, ok := w.arrived[id]; ok {
			took = append(took, max(0, then.Sub(at)))
			if o.verbose {
				second := int(at.Sub(first).Seconds())
				slowest[second] = max(slowest[second], then.Sub(at))
			}
		} else {
			lost++
			took = append(took, time.Since(at))
		}
	}
	fmt.Printf("\t%d calls of Publish\n", w.calls.Load())
	return took, lost, nil
}

// fill enqueues what waits: half of it with keys, unless one key or one shard is meant.
func (w *world) fill(ctx context.Context, n int, missing string) error {
	for i := 0; i < n; {
		var msgs []outbox.Message
		for ; len(msgs) < 1000 && i < n; i++ {
			m := outbox.Message{ID: fmt.Sprint("w", i), Topic: missing, Payload: make([]byte, 200)}
			switch {
			case w.kind == "key":
				m.Topic, m.OrderingKey = w.name, "stranger1"
			case w.kind == "shard":
				m.Topic, m.OrderingKey = w.name, w.inShardOf("stranger1", i)
			case i%2 == 0:
				m.OrderingKey = fmt.Sprint("waits", i)
			}
			msgs = append(msgs, m)
		}
		if err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return w.store.Enqueue(ctx, tx, msgs...) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) inShardOf(key string, i int) string {
	shard := driver.Shard(&outbox.Message{OrderingKey: key}, 64)
	for n := i * 1000; ; n++ {
		if k := fmt.Sprint("s", n); driver.Shard(&outbox.Message{OrderingKey: k}, 64) == shard {
			return k
		}
	}
}

// stream commits messages at the rate. In the cases key and shard they belong to the shard of what waits.
func (w *world) stream(ctx context.Context) error {
	tick := time.NewTicker(time.Second / time.Duration(w.rate))
	defer tick.Stop()
	for i := range int(w.lasting.Seconds() * float64(w.rate)) {
		<-tick.C
		m := outbox.Message{ID: fmt.Sprint("s", i), Topic: w.name, Payload: make([]byte, 200)}
		switch {
		case w.kind == "key" || w.kind == "shard":
			m.OrderingKey = w.inShardOf("stranger1", 1_000_000+i)
		case i%2 == 0:
			m.OrderingKey = fmt.Sprint("stranger", i)
		}
		if err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return w.store.Enqueue(ctx, tx, m) }); err != nil {
			return err
		}
		w.store.Wake(ctx)
		w.mu.Lock()
		w.committed[m.ID] = time.Now()
		w.mu.Unlock()
	}
	return nil
}

// settleDown waits for the last messages of the stream.
func (w *world) settleDown(ctx context.Context) {
	for range 100 {
		w.mu.Lock()
		all := len(w.arrived) >= len(w.committed)
		w.mu.Unlock()
		if all {
			return
		}
		timer := time.NewTimer(100 * time.Millisecond)
		<-timer.C
	}
}

func (w *world) arrive(id string) {
	if id[0] != 's' {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.arrived[id]; !again {
		w.arrived[id] = time.Now()
	}
}
