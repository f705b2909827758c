package deliver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// bench is a Deliverer whose Processor calls process, and a record of everything that happened.
type bench struct {
	*deliver.Deliverer
	t       *testing.T
	cfg     benchConfig
	process func(ctx context.Context, msg *consumer.Message) error

	mu      sync.Mutex
	running map[string]int       // by ordering key
	order   []string             // of begun handlers
	batches [][]string           // as begun
	done    map[string]bool      // handled with success
	settled map[string]error     // each at most once
	sequel  []string             // of settled deliveries
	added   map[string]int       // how many were settled when it had been added
	lost    map[string]int       // how many had been added when it was lost
	most    int                  // batches side by side
	sizes   map[string]int       // by ID, for the limit of a batch
	due     map[string]time.Time // by ID: not to be begun before
}

type benchConfig struct {
	deliver.Config
	single  bool // the Processor is no BatchProcessor
	grace   time.Duration
	exit    time.Duration // defaults to deliver.HandlerExit
	process func(ctx context.Context, msg *consumer.Message) error
}

func newBench(t *testing.T, cfg benchConfig) *bench {
	b := &bench{
		t: t, process: cfg.process, running: map[string]int{}, done: map[string]bool{}, settled: map[string]error{},
		added: map[string]int{}, lost: map[string]int{},
		sizes: map[string]int{}, due: map[string]time.Time{},
	}
	if b.process == nil {
		b.process = func(context.Context, *consumer.Message) error { return nil }
	}
	cfg.Config.Processor = batchBench{b}
	if cfg.single {
		cfg.Config.Processor = singleBench{b}
	}
	cfg.Settle = b.settle
	cfg.exit = cmp.Or(cfg.exit, deliver.HandlerExit)
	b.cfg = cfg
	b.Deliverer = deliver.New(t.Context(), cfg.Config)
	return b
}

type (
	singleBench struct{ b *bench }
	batchBench  struct{ b *bench }
)

func (s singleBench) Process(ctx context.Context, msg *consumer.Message) error {
	return s.b.run(ctx, []*consumer.Message{msg})[0]
}

func (s batchBench) Process(context.Context, *consumer.Message) error {
	panic("a BatchProcessor was given a single message")
}

func (s batchBench) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return s.b.run(ctx, msgs)
}

// run handles messages in order; what follows a failure of its key is held back, as a Consumer does.
func (b *bench) run(ctx context.Context, msgs []*consumer.Message) []error {
	b.mu.Lock()
	var ids []string
	keys := map[string]bool{}
	for _, m := range msgs {
		ids = append(ids, m.ID)
		keys[m.OrderingKey] = true
	}
	b.order, b.batches = append(b.order, ids...), append(b.batches, ids)
	for key := range keys {
		if b.running[key]++; key != "" && b.running[key] > 1 {
			b.t.Errorf("%s: another batch has a message of key %q in work", ids, key)
		}
	}
	b.checkBatch(msgs)
	b.running["batches"]++
	b.most = max(b.most, b.running["batches"])
	b.mu.Unlock()
	errs := make([]error, len(msgs))
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for key := range keys {
			b.running[key]--
		}
		b.running["batches"]--
		for i, m := range msgs {
			b.done[m.ID] = errs[i] == nil
		}
	}()
	failed := map[string]error{}
	for i, m := range msgs {
		if before := failed[m.OrderingKey]; before != nil {
			errs[i] = &consumer.RetryError{Err: before, Held: true}
			continue
		}
		if errs[i] = b.process(ctx, m); errs[i] != nil && m.OrderingKey != "" {
			failed[m.OrderingKey] = errs[i]
		}
	}
	return errs
}

// checkBatch checks limits and order of a batch. b.mu is held. IDs grow in the order of Add.
func (b *bench) checkBatch(msgs []*consumer.Message) {
	size := 0
	last := map[string]string{}
	for i, m := range msgs {
		if size += b.sizes[m.ID]; i > 0 && b.cfg.MaxBatchBytes > 0 && size > b.cfg.MaxBatchBytes {
			b.t.Errorf("a batch of %d messages has %d bytes, more than %d", i+1, size, b.cfg.MaxBatchBytes)
		}
		if m.OrderingKey != "" && last[m.OrderingKey] > m.ID {
			b.t.Errorf("%s stands before %s in a batch, both of key %q", last[m.OrderingKey], m.ID, m.OrderingKey)
		}
		last[m.OrderingKey] = m.ID
		if early := time.Until(b.due[m.ID]); early > 0 {
			b.t.Errorf("%s begins %v too early", m.ID, early)
		}
	}
	if limit := max(b.cfg.MaxBatch, 1); len(msgs) > limit {
		b.t.Errorf("a batch of %d messages, MaxBatch is %d", len(msgs), limit)
	}
}

// add calls Add and records the deliveries. Those that are settled during Add may be settled before add has recorded
// them.
func (b *bench) add(d *deliver.Delivery) {
	b.mu.Lock()
	b.sizes[d.Message.ID] = d.Size
	b.mu.Unlock()
	b.Add(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.added[d.Message.ID] = len(b.sequel)
}

func (b *bench) settle(d *deliver.Delivery, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, twice := b.settled[d.Message.ID]; twice {
		b.t.Errorf("%s is settled twice", d.Message.ID)
	}
	b.settled[d.Message.ID] = err
	b.sequel = append(b.sequel, d.Message.ID)
}

// wants compares answers, by errors.Is.
func (b *bench) wants(want map[string]error) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, err := range want {
		got, is := b.settled[id]
		if !is || !errors.Is(got, err) {
			b.t.Errorf("%s is settled %v with %v; want %v", id, is, got, err)
		}
	}
	if len(b.settled) != len(want) {
		b.t.Errorf("%d are settled: %v; want %d", len(b.settled), b.settled, len(want))
	}
}

func (b *bench) began(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.order, want) {
		b.t.Errorf("begun in the order %q; want %q", b.order, want)
	}
}

// Drain is the Deliverer's, with the times of the benchConfig.
func (b *bench) Drain() error { return b.Deliverer.Drain(b.cfg.grace, b.cfg.exit) }

// drain fails the test if there was an error.
func (b *bench) drain() {
	b.t.Helper()
	if err := b.Drain(); err != nil {
		b.t.Errorf("Drain = %v", err)
	}
}

func delivery(id, key string) *deliver.Delivery {
	return &deliver.Delivery{
		Message: &consumer.Message{ID: id, OrderingKey: key, Position: "queue/" + id, Attempt: 1}, Key: key, Size: 1,
	}
}

func deliveries(n int) (ds []*deliver.Delivery) {
	for i := range n {
		ds = append(ds, delivery(fmt.Sprint(i), ""))
	}
	return ds
}

var (
	errLater  = errors.New("later")
	errReject = errors.New("rejected")
)

func later(after time.Duration) error { return &consumer.RetryError{Err: errLater, After: after} }

func uncounted(after time.Duration) error {
	return &consumer.RetryError{Err: errLater, After: after, Held: true}
}

// inBubble runs test with a clock of its own, and fails if a goroutine is left.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
