package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// begun is a store that counts transactions.
type begun struct {
	*consumertest.Store
	n atomic.Int64
}

func (b *begun) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	b.n.Add(1)
	return b.Store.InTx(ctx, recs, fn)
}

// Copies that arrive together wait without using a connection, and get the outcome of the copy that ran.
func TestAStormOfCopiesIsOneTransaction(t *testing.T) {
	for _, tc := range []struct {
		name    string
		process func(c *consumer.Consumer[tx], m *consumer.Message) error
	}{
		{"Process", func(c *consumer.Consumer[tx], m *consumer.Message) error { return c.Process(context.Background(), m) }},
		{"ProcessBatch", func(c *consumer.Consumer[tx], m *consumer.Message) error {
			return errors.Join(c.ProcessBatch(context.Background(),
				[]*consumer.Message{m, msg("own "+m.Position, "")})...)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, traced := &begun{Store: consumertest.NewStore()}, &events{}
				c := newConsumer(t, config{Store: store, Trace: traced.trace(), Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
					if m.ID == "1" {
						<-time.After(500 * time.Millisecond)
					}
					return tx.Add(m.ID)
				}})
				var wg sync.WaitGroup
				for i := range 1000 {
					m := msg("1", "a")
					m.Position = fmt.Sprint(i)
					wg.Go(func() {
						if err := tc.process(c, m); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				wantCount(t, store.Database(), "1", 1)
				if n := store.n.Load(); tc.name == "Process" && n != 1 {
					t.Errorf("%d transactions for 1000 copies", n)
				}
				if n := traced.count("duplicate 1"); n != 999 {
					t.Errorf("told of %d duplicates, want 999", n)
				}
				if n := c.KeysInUse(); n != 0 {
					t.Errorf("%d keys in use at rest", n)
				}
			})
		})
	}
}

// A waiting message runs by itself if the first copy failed or had other content.
func TestCopiesThatWaitDecideForThemselves(t *testing.T) {
	for _, tc := range []struct {
		name    string
		first   string
		effects int
		letters int
	}{
		{"the first one fails", "poison", 1, 1},
		{"the first one has other content", "other", 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := consumertest.NewStore()
				c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
					<-time.After(time.Second)
					return poison(ctx, tx, m)
				}})
				var wg sync.WaitGroup
				wg.Go(func() { process(t, c, msg("1", tc.first)) })
				synctest.Wait()
				for range 3 {
					wg.Go(func() { process(t, c, msg("1", "a")) })
				}
				wg.Wait()
				wantCount(t, store.Database(), "1", tc.effects)
				if n := len(letters(t, c)); n != tc.letters {
					t.Errorf("%d letters, want %d", n, tc.letters)
				}
				if n := c.KeysInUse(); n != 0 {
					t.Errorf("%d keys in use at rest", n)
				}
			})
		})
	}
}

// If the first copy fails, a waiting copy runs at once, and not after the first one's backoff.
func TestACopyTakesOverFromOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := consumertest.NewStore(), 0
		c := newConsumer(t, config{Store: store, Backoff: func(int) time.Duration { return time.Hour }, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			<-time.After(time.Second)
			if runs++; runs == 1 {
				return errors.New("transient")
			}
			return tx.Add(m.ID)
		}})
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { process(t, c, msg("1", "a")) })
		synctest.Wait()
		process(t, c, msg("1", "a"))
		wantCount(t, store.Database(), "1", 1)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v, want 2s", took)
		}
	})
}

// If another call has committed a key that is an alias of this message, this message is not a duplicate.
func TestAFurtherKeyThatIsCommittedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			<-time.After(time.Second)
			return tx.Add(m.ID)
		}})
		var wg sync.WaitGroup
		wg.Go(func() { process(t, c, msg("1", "a")) })
		synctest.Wait()
		m := msg("2", "a")
		m.Aliases = []string{"1"}
		process(t, c, m)
		wg.Wait()
		wantCount(t, store.Database(), "2", 0)
		if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseKnownContent {
			t.Errorf("letters: %+v", found)
		}
	})
}

// If a context ends, its waiter returns, and the others keep their places.
func TestWaitingForACopyEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			<-time.After(time.Hour)
			return errPoison
		}})
		var wg sync.WaitGroup
		wg.Go(func() { process(t, c, msg("1", "a")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		wg.Go(func() { process(t, c, msg("1", "a")) }) // before or after the one below: both run
		wantRetry(t, c.Process(ctx, msg("1", "a")), true)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("waited %v, want a minute", waited)
		}
		wg.Wait()
		if n := c.KeysInUse(); n != 0 {
			t.Errorf("%d keys in use at rest", n)
		}
	})
}

// Batches with overlapping keys and aliases, together with single messages, do not deadlock.
func TestOverlappingBatches(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Backoff: noBackoff})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for round := range 50 {
				var batch []*consumer.Message
				for _, n := range rand.Perm(20)[:8] {
					id := fmt.Sprint(round, "-", n)
					m := msg(id, "")
					m.Aliases = []string{"further " + id}
					batch = append(batch, m)
				}
				if w == 0 {
					for _, m := range batch {
						process(t, c, m)
					}
					continue
				}
				for len(batch) > 0 {
					var again []*consumer.Message
					for i, err := range c.ProcessBatch(context.Background(), batch) {
						if err != nil {
							again = append(again, batch[i])
						}
					}
					batch = again
				}
			}
		})
	}
	wg.Wait()
	for round := range 50 {
		for n := range 20 {
			if id := fmt.Sprint(round, "-", n); store.Database().Count(id) > 1 {
				t.Errorf("%s ran twice", id)
			}
		}
	}
	if n, l := c.KeysInUse(), len(letters(t, c)); n != 0 || l != 0 {
		t.Errorf("%d keys in use at rest, %d letters", n, l)
	}
}
