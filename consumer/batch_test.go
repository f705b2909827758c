package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// counted is a store that counts its transactions.
type counted struct {
	*consumertest.Store
	n int
}

func (c *counted) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	c.n++
	return c.Store.InTx(ctx, recs, fn)
}

func TestABatchIsOneTransaction(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  config
	}{
		{"Handle", config{Handle: effect}},
		{"HandleBatch", config{HandleBatch: func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
			for _, m := range msgs {
				if err := tx.Add(m.ID); err != nil {
					return err
				}
			}
			return nil
		}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &counted{Store: consumertest.NewStore()}
			tc.cfg.Store = store
			c := newConsumer(t, tc.cfg)
			batch := []*consumer.Message{msg("1", ""), msg("2", ""), msg("1", ""), msg("3", "")}
			for range 2 {
				if errs := c.ProcessBatch(t.Context(), batch); !slices.Equal(errs, make([]error, 4)) {
					t.Error(errs)
				}
			}
			for _, id := range []string{"1", "2", "3"} {
				wantCount(t, store.Database(), id, 1)
			}
			if store.n != 2 {
				t.Errorf("%d transactions for two batches", store.n)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		if errs := newConsumer(t, config{Store: consumertest.NewStore()}).ProcessBatch(t.Context(),
			nil); len(errs) != 0 {
			t.Error(errs)
		}
	})
}

// poisoned returns n messages with ten ordering keys. k of them, evenly spread, have the given payload.
func poisoned(n, k int, payload string) (batch []*consumer.Message) {
	for i := range n {
		m := msg(fmt.Sprint(i), "ok")
		m.OrderingKey = fmt.Sprint("key", i%10)
		if k > 0 && i%(n/k) == n/k/2 {
			m.Payload = []byte(payload)
		}
		batch = append(batch, m)
	}
	return batch
}

// k poison messages among n cost O(k) transactions if it is known which message failed, and O(k log n) otherwise. The
// others are committed in the same call, and the failing ones are parked.
func TestABatchIsTakenApart(t *testing.T) {
	errPoison := consumer.Permanent(errors.New("poison"))
	one := func(_ context.Context, tx tx, m *consumer.Message) error {
		switch string(m.Payload) {
		case "poison":
			return errPoison
		case "swallows":
			_ = tx.Add("")
			return nil
		}
		return tx.Add(m.ID)
	}
	runs := 0
	handle := func(ctx context.Context, tx tx, m *consumer.Message) error { runs++; return one(ctx, tx, m) }
	batch := func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
		runs += len(msgs)
		for _, m := range msgs {
			if err := one(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	}
	naming := func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
		for _, m := range msgs {
			runs++
			if err := one(ctx, tx, m); err != nil {
				return fmt.Errorf("wrapped: %w", &consumer.MessageError{Message: m, Err: err})
			}
		}
		return nil
	}
	for _, tc := range []struct {
		name    string
		cfg     config
		payload string
		known   bool
	}{
		{"Handle", config{Handle: handle}, "poison", true},
		{"HandleBatch with MessageError", config{HandleBatch: naming}, "poison", true},
		{"HandleBatch", config{HandleBatch: batch}, "poison", false},
		{"a swallowed error", config{Handle: handle}, "swallows", false},
		{"a swallowed error in HandleBatch", config{HandleBatch: batch}, "swallows", false},
	} {
		for _, n := range []int{1, 2, 64, 1000} {
			for _, k := range []int{0, 1, 5} {
				if n < 2*k {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d of %d", tc.name, k, n), func(t *testing.T) {
					store := &counted{Store: consumertest.NewStore()}
					tc.cfg.Store, tc.cfg.MaxAttempts = store, 1
					c := newConsumer(t, tc.cfg)
					runs = 0
					msgs := poisoned(n, k, tc.payload)
					for i, err := range c.ProcessBatch(t.Context(), msgs) {
						if err != nil {
							t.Errorf("message %d: %v", i, err)
						}
						want := 1
						if string(msgs[i].Payload) != "ok" {
							want = 0
						}
						wantCount(t, store.Database(), msgs[i].ID, want)
					}
					if found := letters(t, c); len(found) != k {
						t.Errorf("%d letters, want %d", len(found), k)
					}
					log := bits.Len(uint(n))
					limit, limitRuns := 1+5*k, 2*n+2*k
					if !tc.known {
						limit, limitRuns = 1+k*(2*log+3), n*(1+2*min(k, 1)+bits.Len(uint(k)))
					}
					if store.n > limit || runs > limitRuns {
						t.Errorf("%d transactions and %d runs, want at most %d and %d", store.n, runs, limit, limitRuns)
					}
				})
			}
		}
	}
}

// Only later messages with the ordering key of a failed message wait for it.
func TestABatchHoldsBackOnlyItsOwnKey(t *testing.T) {
	store := consumertest.NewStore()
	var order []string
	c := newConsumer(t, config{
		Store: store, MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Minute },
		Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if string(m.Payload) == "later" && m.Attempt == 1 {
				return errors.New("not yet")
			}
			order = append(order, m.ID)
			return tx.Add(m.ID)
		},
	})
	var batch []*consumer.Message
	for _, s := range []string{"a:1", "a:2 later", "b:3", ":4 later", "a:5", ":6", "b:7"} {
		key, rest, _ := strings.Cut(s, ":")
		id, payload, _ := strings.Cut(rest, " ")
		m := msg(id, payload)
		m.OrderingKey = key
		batch = append(batch, m)
	}
	errs := c.ProcessBatch(t.Context(), batch)
	for i, want := range []string{"", "own", "", "own", "held", "", ""} {
		switch want {
		case "":
			if errs[i] != nil {
				t.Errorf("message %s: %v", batch[i].ID, errs[i])
			}
		case "own", "held":
			if retry := wantRetry(t, errs[i], want == "held"); retry.After != time.Minute {
				t.Errorf("message %s: again after %v, want a minute", batch[i].ID, retry.After)
			}
		}
	}
	var again []*consumer.Message
	for i, err := range errs {
		if err != nil {
			m := *batch[i]
			if !wantRetry(t, err, i == 4).Held {
				m.Attempt++
			}
			again = append(again, &m)
		}
	}
	if errs := c.ProcessBatch(t.Context(), again); !slices.Equal(errs, make([]error, 3)) {
		t.Error(errs)
	}
	for i, m := range batch {
		wantCount(t, store.Database(), m.ID, 1)
		if m.OrderingKey == "a" && slices.Index(order, "5") < slices.Index(order, "2") {
			t.Errorf("message %d was overtaken: %v", i, order)
		}
	}
}

func TestWhatIsRejectedHoldsBackItsKey(t *testing.T) {
	store := struct{ dedup.Store[tx] }{consumertest.NewStore()}
	c := newConsumer(t, config{Store: store, MaxAttempts: 1, Handle: func(_ context.Context, _ tx, m *consumer.Message) error {
		if m.ID == "1" {
			return consumer.RetryAfter(errors.New("poison"), time.Second)
		}
		return nil
	}})
	one, two := msg("1", ""), msg("2", "")
	one.OrderingKey, two.OrderingKey = "k", "k"
	errs := c.ProcessBatch(t.Context(), []*consumer.Message{one, two})
	if _, retry := errors.AsType[*consumer.RetryError](errs[0]); errs[0] == nil || retry {
		t.Errorf("given up on: %v, want an error that is no *RetryError", errs[0])
	}
	wantRetry(t, errs[1], true)
}

func itself(s *consumertest.Store) dedup.Store[tx] { return s }

// Another process holds one of the batch's keys: only that message is deferred, and without a long wait.
func TestABatchWithATwinInFlight(t *testing.T) {
	for _, tc := range []struct {
		name string
		same bool
		wait time.Duration
		wrap func(*consumertest.Store) dedup.Store[tx]
	}{
		{"in this process", true, time.Second, itself},
		{"in another process", false, time.Second, itself},
		{"in another process, of a store that cannot tell keys apart", false, time.Second + 50*time.Millisecond, func(s *consumertest.Store) dedup.Store[tx] {
			return struct{ dedup.Store[tx] }{s}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, traced := consumertest.NewStore(), &events{}
				slow := func(ctx context.Context, tx tx, m *consumer.Message) error {
					if string(m.Payload) == "slow" {
						<-time.After(time.Minute)
					}
					return tx.Add(m.ID)
				}
				c := newConsumer(t, config{Store: tc.wrap(store), Handle: slow, Trace: traced.trace()})
				other := c
				if !tc.same {
					other = newConsumer(t, config{Store: consumertest.NewStoreOn(store.Database()), Handle: slow})
				}
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() { process(t, other, msg("5", "slow")) })
				synctest.Wait()
				start := time.Now()
				errs := c.ProcessBatch(t.Context(), poisoned(16, 0, ""))
				if waited := time.Since(start); waited > tc.wait {
					t.Errorf("waited %v, want at most %v", waited, tc.wait)
				}
				for i, err := range errs {
					switch i {
					case 5, 15: // 15 has the ordering key of 5
						wantRetry(t, err, true)
					default:
						if err != nil {
							t.Errorf("message %d: %v", i, err)
						}
						wantCount(t, store.Database(), fmt.Sprint(i), 1)
					}
				}
				if n := traced.count("held(in_flight) 5"); n != 1 {
					t.Errorf("told %d times that 5 is in flight", n)
				}
			})
		})
	}
}

// A fault that one message meets defers only that message. After a fault that all messages meet, not each of them is
// tried.
func TestABatchAndAFaultyDatabase(t *testing.T) {
	t.Run("for one message", func(t *testing.T) {
		store := &faulty{Store: consumertest.NewStore()}
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "3" {
				return tx.Fail(errFault)
			}
			return tx.Add(m.ID)
		}})
		for i, err := range c.ProcessBatch(t.Context(), poisoned(8, 0, "")) {
			if i == 3 {
				wantRetry(t, err, true)
			} else if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if found := letters(t, c); len(found) != 0 {
			t.Errorf("parked: %v", found)
		}
	})
	t.Run("from its middle on", func(t *testing.T) {
		store, begun := &faulty{Store: consumertest.NewStore()}, 0
		store.before = func() error { begun++; return nil }
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "30" {
				store.Database().Stop()
			}
			return tx.Add(m.ID)
		}})
		batch := poisoned(64, 0, "")
		for _, m := range batch {
			m.OrderingKey = "" // none is held back for its key
		}
		for _, err := range c.ProcessBatch(t.Context(), batch) {
			wantRetry(t, err, true)
		}
		if begun != 2 {
			t.Errorf("%d transactions, want 2", begun)
		}
	})
	for _, tc := range []struct {
		name string
		fail func(*faulty)
		most int
	}{
		{"at BEGIN", func(f *faulty) { f.before = times(1000, errFault) }, 1},
		{"at COMMIT", func(f *faulty) { f.rolls = times(1000, errFault) }, 9},
		{"after COMMIT", func(f *faulty) { f.after = times(1000, errFault) }, 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inner := &counted{Store: consumertest.NewStore()}
			store := &faulty{Store: inner.Store}
			tc.fail(store)
			begun, before := 0, store.before
			store.before = func() error {
				begun++
				if before != nil {
					return before()
				}
				return nil
			}
			c := newConsumer(t, config{Store: store})
			for _, err := range c.ProcessBatch(t.Context(), poisoned(64, 0, "")) {
				if err != nil { // a claim may find that a COMMIT has happened
					wantRetry(t, err, true)
				}
			}
			if begun > tc.most {
				t.Errorf("%d transactions, want at most %d", begun, tc.most)
			}
			store.before, store.rolls, store.after = nil, nil, nil
			for i, err := range c.ProcessBatch(t.Context(), poisoned(64, 0, "")) {
				if err != nil {
					t.Error(err)
				}
				wantCount(t, store.Database(), fmt.Sprint(i), 1)
			}
		})
	}
}
