package consumer

import (
	"context"
	"fmt"
	"slices"

	"github.com/txonce/txonce/dedup"
)

// use is an item's need of a key.
type use struct {
	key     dedup.KeyHash
	item    int
	further bool // as a further key
}

// lock locks the keys of all items, in the order that everybody locks in. Items whose key another call has committed
// meanwhile are done; those whose key it does not give up in time are refused as in flight.
func (b *batch[TTx]) lock(ctx context.Context) (unlock func()) {
	if b.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.patience, dedup.ErrInFlight)
		defer cancel()
	}
	uses := b.uses()
	held := uses[:0] // a key once; what it overwrites was read before
	for len(uses) > 0 {
		n := 1
		for n < len(uses) && uses[n].key == uses[0].key {
			n++
		}
		if b.lockOne(ctx, uses[:n]) {
			held = append(held, uses[0])
		}
		uses = uses[n:]
	}
	return func() {
		for _, u := range held {
			it := &b.items[u.item]
			b.keys.unlock(u.key, outcome{committed: it.committed && !u.further, fingerprint: it.row})
		}
	}
}

// uses lists who needs which key, in the order of the keys, and for each key its own messages first.
func (b *batch[TTx]) uses() []use {
	uses := make([]use, 0, len(b.items))
	for i := range b.items {
		it := &b.items[i]
		if it.rec.Key.ID == "" {
			continue
		}
		uses = append(uses, use{key: it.derived, item: i})
		for _, also := range it.also {
			uses = append(uses, use{key: also.Key.Hash(), item: i, further: true})
		}
	}
	slices.SortStableFunc(uses, func(a, b use) int {
		if c := a.key.Compare(b.key); c != 0 || a.further == b.further {
			return c
		}
		if a.further {
			return 1
		}
		return -1
	})
	return uses
}

// lockOne reports whether the key of uses, which is one and the same, is held.
func (b *batch[TTx]) lockOne(ctx context.Context, uses []use) bool {
	for {
		other, err := b.keys.lock(ctx, uses[0].key)
		switch {
		case err != nil: // ErrInFlight, or ctx has ended
			for _, u := range uses {
				it := &b.items[u.item]
				it.refused = fmt.Errorf("wait for %v in this process: %w", it.rec.Key, err)
			}
			return false
		case !other.committed:
			return true
		case b.settle(ctx, uses, other):
			return false
		}
	}
}

// settle takes the outcome of another call, if that says what becomes of all items that need its key.
func (b *batch[TTx]) settle(ctx context.Context, uses []use, o outcome) bool {
	if slices.ContainsFunc(uses, func(u use) bool { return u.further || !o.fingerprint.Matches(b.items[u.item].rec.Fingerprint) }) {
		return false
	}
	for _, u := range uses {
		it := &b.items[u.item]
		it.done = true
		b.trace(ctx, onDuplicate, it.msg, nil)
	}
	return true
}
