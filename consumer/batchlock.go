package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/txonce/txonce/dedup"
)

// users are the items of a batch that need one key.
type users struct {
	items   []int
	further bool // as a further key of some
}

// lock locks the keys of all items, in the order that everybody locks in. Items whose key another call has committed
// meanwhile are done; those whose key it does not give up in time are refused as in flight.
func (b *batch[TTx]) lock(ctx context.Context) (unlock func()) {
	keys := map[dedup.Derived]*users{}
	use := func(key dedup.Derived, i int) *users {
		u := keys[key]
		if u == nil {
			u = &users{}
			keys[key] = u
		}
		u.items = append(u.items, i)
		return u
	}
	for i := range b.items {
		it := &b.items[i]
		if it.rec.Key.ID == "" {
			continue
		}
		use(it.derived, i)
		for _, also := range it.also {
			use(also.Key.Derive(), i).further = true
		}
	}

	if b.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.patience, dedup.ErrInFlight)
		defer cancel()
	}
	var held []dedup.Derived
	for _, key := range slices.SortedFunc(maps.Keys(keys), dedup.Derived.Compare) {
		for {
			settled, err := b.keys.lock(ctx, key)
			if err != nil { // ErrInFlight, or ctx has ended
				for _, i := range keys[key].items {
					b.items[i].refused = fmt.Errorf("wait for %v in this process: %w", b.items[i].rec.Key, err)
				}
				break
			}
			if settled == nil {
				held = append(held, key)
				break
			}
			if b.settle(ctx, keys[key], settled) {
				break
			}
		}
	}
	return func() {
		for _, key := range held {
			b.keys.unlock(key, b.outcomes[key])
		}
	}
}

// settle takes the outcome of another call for u's items, if that says what becomes of all of them.
func (b *batch[TTx]) settle(ctx context.Context, u *users, o *outcome) bool {
	if u.further || slices.ContainsFunc(u.items, func(i int) bool { return !o.fingerprint.Matches(b.items[i].rec.Fingerprint) }) {
		return false
	}
	for _, i := range u.items {
		b.items[i].done = true
		b.trace(ctx, onDuplicate, b.items[i].msg, nil)
	}
	return true
}
