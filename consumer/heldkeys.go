package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// shortWait is how long a batch waits, in total, for keys that other processes hold after one claim has waited for the
// Store's full time. Otherwise it would wait that long for each of them.
const shortWait = 50 * time.Millisecond

// freeMost limits how many times in a row a pass claims again because no key is held any more.
const freeMost = 3

// claimWait limits how long one pass waits for keys that other processes hold.
type claimWait struct {
	short bool // from now on only left may be waited
	left  time.Duration
	free  int // how many times in a row a claim failed, but no key was held when the store was asked
}

// expectHeldKeys makes a batch wait for a short time only if one of its keys was held when it was tried last.
func (b *batch[TTx]) expectHeldKeys() {
	if len(b.items) > 1 && slices.ContainsFunc(b.items,
		func(it item) bool { return b.c.memory.past(it.hash).InFlight > 0 }) {
		b.claimWait = claimWait{short: true, left: shortWait}
	}
}

// limited returns the ctx for the next claim.
func (w *claimWait) limited(ctx context.Context) context.Context {
	if !w.short {
		return ctx
	}
	return driver.WithClaimWait(ctx, max(w.left/4, time.Millisecond))
}

// waited records that a claim waited and failed.
func (w *claimWait) waited() {
	if !w.short {
		w.short, w.left = true, shortWait
		return
	}
	w.left -= w.left / 4
}

// deferHeldKeys defers those of items[todo...], whose claim failed with f and err, that need keys which other
// transactions hold. It returns false if it cannot tell which those are.
func (b *batch[TTx]) deferHeldKeys(ctx context.Context, todo []int, epoch int, f decide.Failure, err error) bool {
	prober, _ := b.c.cfg.Store.(driver.KeyProber)
	held, probeErr := heldKeys(ctx, prober, b.items, todo)
	if probeErr != nil {
		b.c.cfg.Logger.WarnContext(ctx, "the store cannot tell which keys are in flight; the batch is tried in halves",
			"consumer", b.c.cfg.Name, "error", probeErr)
		return false
	}
	if len(held) > 0 {
		b.claimWait.free = 0
	} else if b.claimWait.free++; b.claimWait.free > freeMost {
		return false
	}
	for _, i := range todo {
		if key, isHeld := held[i]; isHeld {
			b.judge(ctx, i, epoch, f, fmt.Errorf("%w: %v", err, key))
		}
	}
	return true
}

// heldKeys returns one held key for each of items[todo...] that has one.
func heldKeys(ctx context.Context, prober driver.KeyProber, all []item, todo []int) (map[int]dedup.Key, error) {
	var keys []dedup.Key
	var items []int // items[k] needs keys[k]
	for _, i := range todo {
		it := &all[i]
		keys, items = append(keys, it.rec.Key), append(items, i)
		for _, alias := range it.aliases {
			keys, items = append(keys, alias.Key), append(items, i)
		}
	}
	answers, err := prober.HeldKeys(ctx, keys)
	if err == nil && len(answers) != len(keys) {
		err = fmt.Errorf("the store answered %d of %d keys", len(answers), len(keys))
	}
	if err != nil {
		return nil, err
	}
	held := map[int]dedup.Key{}
	for k, isHeld := range answers {
		if isHeld {
			held[items[k]] = keys[k]
		}
	}
	return held, nil
}
