package consumertest

import (
	"context"
	"sync"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
)

var _ driver.Interleaver[*deduptest.Tx] = (*ProcessStore)(nil)

// Interleave implements driver.Interleaver: the scheduler decides which handler goes on at each statement. A failed
// statement ends the transaction, as all handlers share it.
func (s *ProcessStore) Interleave(ctx context.Context, tx *deduptest.Tx, keys []string,
	handlers []func(ctx context.Context, tx *deduptest.Tx) error,
) (failed int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed = -1
	var mu sync.Mutex
	var all sync.WaitGroup
	run := func(i int) error {
		at, theirs := -1, ctx.Err() // of no handler, if ctx has ended
		if theirs == nil {
			at, theirs = i, handlers[i](ctx, tx)
		}
		mu.Lock()
		defer mu.Unlock()
		if theirs != nil && err == nil {
			failed, err = at, theirs
			stop()
		}
		return theirs
	}
	for _, part := range inTurn(keys) {
		all.Go(func() {
			for _, i := range part {
				if run(i) != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return failed, err
}

// inTurn returns the places of keys, those of one key together. Each empty key is alone.
func inTurn(keys []string) (parts [][]int) {
	at := map[string]int{}
	for i, key := range keys {
		n, found := at[key]
		if !found || key == "" {
			n = len(parts)
			at[key], parts = n, append(parts, nil)
		}
		parts[n] = append(parts[n], i)
	}
	return parts
}
