package calls_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// store is a deduptest.Store that records what is enqueued.
type store struct {
	*deduptest.Store
	enqueued []outbox.Message
	keep     func(driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] // nil: as it is
	commits  atomic.Pointer[error]                                                   // of InTx once, after COMMIT
}

func (s *store) InTx(ctx context.Context, recs []dedup.Record, fn func(*deduptest.Tx, []dedup.Claim) error) error {
	err := s.Store.InTx(ctx, recs, fn)
	if lost := s.commits.Swap(nil); err == nil && lost != nil {
		err = *lost
	}
	return err
}

func (s *store) Enqueue(_ context.Context, _ *deduptest.Tx, msgs ...outbox.Message) error {
	for _, m := range msgs {
		if err := m.Validate(); err != nil {
			return err
		}
		s.enqueued = append(s.enqueued, m)
	}
	return nil
}

func (s *store) Calls() driver.CallKeeper[*deduptest.Tx] {
	if s.keep != nil {
		return s.keep(s.Store.Calls())
	}
	return s.Store.Calls()
}

type config = calls.Config[*deduptest.Tx]

func validConfig() config {
	return config{
		Name: "charge", Store: &store{Store: deduptest.NewStore()},
		Do:   func(context.Context, calls.Call) (calls.Result, error) { return nil, nil },
		Done: func(context.Context, *deduptest.Tx, calls.Call, calls.Result) error { return nil },
	}
}

// bank is another system, and what its calls did here.
type bank struct {
	t     *testing.T
	cfg   config
	store *store
	calls *calls.Calls[*deduptest.Tx]

	mu      sync.Mutex
	charged map[string]int // by idempotency key
	asked   int
	do      []func(key string) error // the first answers of Do; then it charges and returns nil
}

var errLost = errors.New("connection reset")

func newBank(t *testing.T, change func(b *bank)) *bank {
	b := &bank{t: t, cfg: validConfig(), charged: map[string]int{}}
	b.store = b.cfg.Store.(*store)
	b.cfg.Keeps = 24 * time.Hour
	b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.do) > 0 {
			next := b.do[0]
			b.do = b.do[1:]
			if err := next(c.IdempotencyKey); err != nil {
				return nil, err
			}
		} else {
			b.charged[c.IdempotencyKey]++
		}
		return calls.Result("charged " + c.ID), nil
	}
	b.cfg.Done = func(_ context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
		return tx.Add("done: " + string(r))
	}
	if change != nil {
		change(b)
	}
	var err error
	if b.calls, err = calls.New(b.cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// find is a Find that knows what was charged.
func (b *bank) find(_ context.Context, c calls.Call) (calls.Result, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return calls.Result("charged " + c.ID), b.charged[c.IdempotencyKey] > 0, nil
}

func (b *bank) lost(key string) error { b.charged[key]++; return errLost } // it charges, and the answer is lost
func (b *bank) never(string) error    { return errLost }                   // the request does not arrive

func leased(id string, age time.Duration) outboxdriver.Leased {
	return outboxdriver.Leased{Stored: outbox.Stored{
		Message:  outbox.Message{ID: id, Topic: "charge", Payload: []byte("10 EUR")},
		Enqueued: time.Now().Add(-age),
	}}
}

// publish publishes one call, which was enqueued age ago.
func (b *bank) publish(id string, age time.Duration) error {
	b.t.Helper()
	errs := b.calls.PublishLeased(b.t.Context(), []outboxdriver.Leased{leased(id, age)})
	return errs[0]
}

// want fails the test unless the bank has charged, and Done has run, so often for one call.
func (b *bank) want(charged, done int) {
	b.t.Helper()
	total := 0
	for _, n := range b.charged {
		total += n
	}
	if got := b.store.Database().Count("done: charged a"); total != charged || got != done {
		b.t.Errorf("charged %d times, Done %d times; want %d and %d", total, got, charged, done)
	}
}

func (b *bank) record(id string) driver.Call {
	b.t.Helper()
	c, err := b.store.Store.Calls().Call(b.t.Context(), calls.KeyOf("charge", id))
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func inDoubt(err error) bool { return errors.As(err, new(*outbox.InDoubtError)) }
