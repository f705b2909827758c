package deduptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/dedup"
)

// raceCases are about transactions that run at the same time.
func raceCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "many copies at once: one effect", perIsolation: true, run: storm[TTx]},
		{name: "staggered twins in batches: one effect each", perIsolation: true, run: staggeredTwins[TTx]},
		{
			name: "two batches in opposite order both finish or are retryable", perIsolation: true,
			run: oppositeBatches[TTx],
		},
		{
			name: "claims of own transactions in opposite order both finish or are retryable", perIsolation: true,
			run: oppositeClaims[TTx],
		},
	}
}

func storm[TTx any](t *testing.T, e *env[TTx]) {
	nodes := []dedup.Store[TTx]{e.node(t), e.node(t)}
	ctx := bounded(t)
	const copies, keys = 8, 6
	var wg sync.WaitGroup
	var firsts atomic.Int64
	for i := range copies {
		wg.Go(func() {
			s := nodes[i%len(nodes)]
			for k := range keys {
				r := record(fmt.Sprint("k", k))
				var c dedup.Claim
				err := retry(ctx, s, func() (err error) {
					c, err = e.handle(ctx, s, r)
					return err
				})
				if err != nil {
					t.Errorf("%v: %v", r.Key, err)
				}
				if c.Verdict == dedup.First {
					firsts.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if firsts.Load() != keys {
		t.Errorf("%d firsts for %d keys", firsts.Load(), keys)
	}
	for k := range keys {
		if n := e.count(t, fmt.Sprint("k", k)); n != 1 {
			t.Errorf("k%d: %d effects, want 1", k, n)
		}
	}
}

// batch claims recs in one transaction and writes the effects of the new ones.
func (e *env[TTx]) batch(ctx context.Context, s dedup.Store[TTx], recs []dedup.Record) error {
	ran := false
	return s.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		if ran {
			return errTwice
		}
		ran = true
		for i, c := range claims {
			if c.Verdict == dedup.First {
				if err := e.Effect(ctx, tx, recs[i].Key.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func staggeredTwins[TTx any](t *testing.T, e *env[TTx]) {
	ctx := bounded(t)
	const workers, keys, size, step = 4, 120, 20, 5
	var wg sync.WaitGroup
	for w := range workers {
		s := e.node(t)
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for from := 0; from <= keys-size; from += step { // overlapping batches; each worker has its own step
				var recs []dedup.Record
				for _, k := range random.Perm(size) {
					recs = append(recs, record(fmt.Sprint("k", from+k)))
				}
				if err := retry(ctx, s, func() error { return e.batch(ctx, s, recs) }); err != nil {
					t.Errorf("batch from %d: %v", from, err)
					return
				}
			}
		})
	}
	wg.Wait()
	effects := map[string]int{}
	for _, name := range e.Effects(t) {
		effects[name]++
	}
	for k := range keys {
		if n := effects[fmt.Sprint("k", k)]; n != 1 {
			t.Errorf("k%d: %d effects, want 1", k, n)
		}
	}
}

func oppositeBatches[TTx any](t *testing.T, e *env[TTx]) {
	nodes := []dedup.Store[TTx]{e.node(t), e.node(t)}
	ctx := bounded(t)
	for round := range 10 {
		up := make([]dedup.Record, 50)
		for i := range up {
			up[i] = record(fmt.Sprintf("%d/%d", round, i))
		}
		down := slices.Clone(up)
		slices.Reverse(down)
		e.together(t, 2, func(i int) error {
			s, recs := nodes[i], [][]dedup.Record{up, down}[i]
			attempts := 0
			return retry(ctx, s, func() error {
				if attempts++; attempts > 50 {
					return fmt.Errorf("no end after %d attempts", attempts)
				}
				return e.batch(ctx, s, recs)
			})
		})
		if t.Failed() {
			return
		}
	}
	if n := len(e.Effects(t)); n != 500 {
		t.Errorf("%d effects, want 500", n)
	}
}

// together runs n calls of f at the same time and reports their errors.
func (e *env[TTx]) together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			if err := f(i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
}

// oppositeClaims forces a deadlock: each transaction holds one key and claims the other's.
func oppositeClaims[TTx any](t *testing.T, e *env[TTx]) {
	nodes := []dedup.Store[TTx]{e.node(t), e.node(t)}
	ctx := bounded(t)
	ids := []string{"a", "b"}
	var meeting sync.WaitGroup
	meeting.Add(2)
	e.together(t, 2, func(i int) error {
		s, met := nodes[i], sync.OnceFunc(meeting.Done)
		defer met()
		attempts := 0
		return retry(ctx, s, func() error {
			if attempts++; attempts > 1 {
				met() // whatever happened to the first transaction
			}
			return e.Tx(ctx, e.options(), func(tx TTx) error {
				for n, id := range []string{ids[i], ids[1-i]} {
					claims, err := s.Claim(ctx, tx, []dedup.Record{record(id)})
					if err != nil {
						return err
					}
					if claims[0].Verdict == dedup.First {
						if err := e.Effect(ctx, tx, id); err != nil {
							return err
						}
					}
					if n == 0 && attempts == 1 && !e.OneWriter {
						met()
						meeting.Wait()
					}
				}
				return nil
			})
		})
	})
	e.wantEffects(t, "a", "b")
}
