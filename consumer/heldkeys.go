package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

// waitAgain is how long a batch waits in all for keys that other processes hold, once it has waited as long as the Store's
// claims do: it must not spend that time on each of them.
const waitAgain = 50 * time.Millisecond

// claimWait bounds the waiting of one pass for keys that other processes hold.
type claimWait struct {
	short bool // only left is waited from now on
	left  time.Duration
	free  int // how often in a row no key was held when it was looked at
}

// freeMost bounds how often a pass claims again because the keys it has waited for have just become free.
const freeMost = 3

// expectHeld has a batch wait for a short time only where a key of it was held when it was delivered before.
func (b *batch[TTx]) expectHeld() {
	if len(b.items) > 1 && slices.ContainsFunc(b.items, func(it item) bool { return b.inFlight.known(it.derived) }) {
		b.wait = claimWait{short: true, left: waitAgain}
	}
}

// limited returns the ctx for the next claim.
func (w *claimWait) limited(ctx context.Context) context.Context {
	if !w.short {
		return ctx
	}
	return dedup.WithClaimWait(ctx, max(w.left/4, time.Millisecond))
}

// waited notes that a claim has waited in vain.
func (w *claimWait) waited() {
	if !w.short {
		w.short, w.left = true, waitAgain
		return
	}
	w.left -= w.left / 4
}

// leaveHeld goes on with items[todo...], whose claim failed with err, an ErrInFlight, without the messages whose keys other
// transactions hold: those are deferred. It reports false where it cannot tell which ones these are.
func (b *batch[TTx]) leaveHeld(ctx context.Context, todo []int, epoch int, err error) bool {
	prober, ok := b.cfg.Store.(dedup.KeyProber)
	if !ok {
		return false
	}
	held, probed := b.heldKeys(ctx, prober, todo)
	if probed != nil {
		b.cfg.Logger.WarnContext(ctx, "the store cannot tell which keys are in flight; the batch is tried in halves", "consumer", b.cfg.Name, "error", probed)
		return false
	}
	if len(held) > 0 {
		b.wait.free = 0
	} else if b.wait.free++; b.wait.free > freeMost {
		return false
	}
	for _, i := range todo {
		if key, is := held[i]; is {
			b.judge(ctx, i, epoch, fmt.Errorf("%w: %v", err, key))
		}
	}
	b.run(ctx, todo) // what was deferred is left out
	return true
}

// heldKeys returns those of items[todo...] whose keys are held, and one such key of each.
func (b *batch[TTx]) heldKeys(ctx context.Context, prober dedup.KeyProber, todo []int) (map[int]dedup.Key, error) {
	var keys []dedup.Key
	var of []int
	for _, i := range todo {
		it := &b.items[i]
		keys, of = append(keys, it.rec.Key), append(of, i)
		for _, also := range it.also {
			keys, of = append(keys, also.Key), append(of, i)
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
	for k, is := range answers {
		if is {
			held[of[k]] = keys[k]
		}
	}
	return held, nil
}
