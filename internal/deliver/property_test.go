package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// TestProperty: whatever happens, no two of a key are in work at once, each delivery is settled exactly once, nothing
// of a key is handled with success behind one that was given back, and no goroutine is left.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := deliver.Config{
			Concurrency: rapid.IntRange(1, 4).Draw(rt, "concurrency"),
			MaxBatch:    rapid.IntRange(1, 5).Draw(rt, "batch"),
			SplitEvenly: rapid.Bool().Draw(rt, "split"),

			MaxBatchBytes: rapid.IntRange(0, 20).Draw(rt, "bytes"),
		}
		grace := time.Duration(rapid.IntRange(0, 3).Draw(rt, "grace")) * time.Second
		keeps, keys := rapid.IntRange(0, 3).Draw(rt, "keeps"), rapid.IntRange(0, 4).Draw(rt, "keys")
		n, loses := rapid.IntRange(1, 60).Draw(rt, "n"), rapid.IntRange(0, 3).Draw(rt, "loses")
		rejects := rapid.IntRange(0, 9).Draw(rt, "rejects") == 0
		life := time.Duration(rapid.IntRange(0, 30).Draw(rt, "life")) * time.Second
		seed := rapid.Uint64().Draw(rt, "seed")
		var trouble []string
		synctest.Test(t, func(t *testing.T) {
			trouble = tryOnce(t, cfg, grace, keeps, keys, n, loses, rejects, life, seed)
		})
		for _, what := range trouble {
			rt.Error(what)
		}
	})
}

func tryOnce(t *testing.T, cfg deliver.Config, grace time.Duration, keeps, keys, n, loses int, rejects bool,
	life time.Duration, seed uint64,
) (trouble []string) {
	random := &lockedRand{r: rand.New(rand.NewPCG(seed, 1))}
	if keeps > 0 {
		cfg.Keep = func(*deliver.Delivery, *consumer.RetryError) bool { return random.n(4) < keeps }
	}
	var b *bench
	b = newBench(t, benchConfig{Config: cfg, grace: grace, process: func(ctx context.Context, msg *consumer.Message) error {
		select {
		case <-time.After(time.Duration(random.n(1500)) * time.Millisecond):
		case <-ctx.Done():
			return uncountedError(ctx.Err())
		}
		switch random.n(6) {
		case 0:
			after := time.Duration(random.n(3)) * time.Second
			b.notBefore(msg, after)
			return later(after)
		case 1:
			return uncounted(time.Duration(random.n(3)) * time.Second)
		case 2:
			if rejects && random.n(10) == 0 {
				return errReject
			}
		}
		return nil
	}})
	var added []*deliver.Delivery
	for i := range n {
		key := ""
		if k := random.n(keys + 1); k > 0 {
			key = fmt.Sprint("key", k)
		}
		d := delivery(fmt.Sprintf("%03d", i), key)
		d.Size = random.n(10)
		added = append(added, d)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, d := range added {
			b.add(d)
			if random.n(3) == 0 {
				<-time.After(time.Duration(random.n(800)) * time.Millisecond)
			}
			if random.n(20) < loses {
				d := random.n(len(added))
				if id := added[d].Message.ID; d <= i && b.lost[id] == 0 {
					b.lost[id] = i + 1
				}
				b.Lose(added[d])
			}
		}
	}()
	select {
	case <-time.After(life):
	case <-b.Context().Done():
	}
	err := b.Drain()
	<-done
	if err != nil && !errors.Is(err, errReject) {
		trouble = append(trouble, fmt.Sprint("Drain = ", err))
	}
	return append(trouble, b.broken(added)...)
}

// notBefore makes the bench fail when msg begins earlier than after that time.
func (b *bench) notBefore(msg *consumer.Message, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due[msg.ID] = time.Now().Add(after)
}

// TestNothingIsForgotten: a delivery that fails a few times and is kept is handled in the end, without Drain.
func TestNothingIsForgotten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := deliver.Config{
			Concurrency:   rapid.IntRange(1, 4).Draw(rt, "concurrency"),
			MaxBatch:      rapid.IntRange(1, 5).Draw(rt, "batch"),
			MaxBatchBytes: rapid.IntRange(0, 3).Draw(rt, "bytes"),
			SplitEvenly:   rapid.Bool().Draw(rt, "split"),
			Keep:          keepAll,
		}
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 40).Draw(rt, "keys")
		failures := rapid.SliceOfN(rapid.IntRange(-3, 3), len(keys), len(keys)).Draw(rt, "failures")
		delays := rapid.SliceOfN(rapid.IntRange(0, 2000), len(keys), len(keys)).Draw(rt, "delays")
		synctest.Test(t, func(t *testing.T) {
			left := map[string]int{}
			var mu sync.Mutex
			b := newBench(t, benchConfig{Config: cfg, process: func(_ context.Context, msg *consumer.Message) error {
				<-time.After(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if left[msg.ID]--; left[msg.ID] >= 0 {
					return later(time.Duration(left[msg.ID]) * 100 * time.Millisecond)
				}
				return nil
			}})
			want := map[string]error{}
			for i, key := range keys {
				d := delivery(fmt.Sprintf("%03d", i), key)
				mu.Lock()
				left[d.Message.ID] = failures[i]
				mu.Unlock()
				want[d.Message.ID] = nil
				b.add(d)
				if delays[i] > 1500 {
					<-time.After(time.Duration(delays[i]-1500) * time.Millisecond)
				}
			}
			<-time.After(time.Hour)
			b.wants(want)
			if n, bytes, _ := b.Unsettled(); n != 0 || bytes != 0 {
				t.Errorf("%d deliveries with %d bytes are unsettled at the end", n, bytes)
			}
			b.drain()
		})
	})
}

// broken lists the broken rules.
func (b *bench) broken(added []*deliver.Delivery) (trouble []string) {
	if len(b.settled) != len(added) {
		trouble = append(trouble, fmt.Sprintf("%d added, %d settled", len(added), len(b.settled)))
	}
	left := map[string][]string{} // by key: earlier ones that left unhandled
	for i, d := range added {
		id, err := d.Message.ID, b.settled[d.Message.ID]
		if d.Key == "" {
			continue
		}
		for _, before := range left[d.Key] {
			gone := slices.Index(b.sequel, before) < b.added[id] // when d came
			// before d came, so the broker delivers it again before d
			lost := b.lost[before] > 0 && i >= b.lost[before]
			if err == nil && !gone && !lost {
				trouble = append(trouble, fmt.Sprintf("%s of %s is acknowledged although %s left before it, unhandled",
					id, d.Key, before))
			}
		}
		if err != nil && !b.done[id] {
			left[d.Key] = append(left[d.Key], id)
		}
	}
	return trouble
}

// lockedRand is for several goroutines. Their order is the bubble's, so a seed repeats only roughly what happened.
type lockedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *lockedRand) n(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(max(n, 1))
}
