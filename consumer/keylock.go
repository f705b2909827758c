package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

type keyWaiter struct {
	woken   chan struct{}
	outcome keyOutcome // written before woken is closed
}

// keyOutcome is the result of holding a key.
type keyOutcome struct {
	committed   bool
	fingerprint dedup.Fingerprint // of the committed message
	parked      *sharedPark       // the message was parked, and its copies are too
}

// decided reports whether the outcome may decide about waiters, so that none of them gets the key.
func (o keyOutcome) decided() bool { return o.committed || o.parked != nil }

// lock waits until the caller holds key, or until its holder has committed or parked its message. In the latter case
// the caller does not hold the key, and gets the outcome.
//
// So copies of one message wait for each other in this process, where they hold no database connections. When a holder
// commits a key, all waiters get the outcome, so that many copies cost one transaction.
func (m *memory) lock(ctx context.Context, key dedup.KeyHash) (keyOutcome, error) {
	m.mu.Lock()
	k := m.keys[key]
	if !k.held {
		k.held = true
		m.set(key, k)
		m.mu.Unlock()
		return keyOutcome{}, nil
	}
	w := &keyWaiter{woken: make(chan struct{})}
	k.waiters = append(k.waiters, w)
	m.set(key, k)
	m.mu.Unlock()

	select {
	case <-w.woken:
		return w.outcome, nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-w.woken: // at the same moment
		return w.outcome, nil
	default:
	}
	k = m.keys[key]
	k.waiters = slices.DeleteFunc(k.waiters, func(q *keyWaiter) bool { return q == w })
	m.set(key, k)
	return keyOutcome{}, context.Cause(ctx)
}

// unlock gives key to the caller that has waited longest. If the key's message was committed or parked, it gives the
// outcome to all of them.
func (m *memory) unlock(key dedup.KeyHash, o keyOutcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[key]
	switch {
	case o.decided():
		for _, w := range k.waiters {
			w.outcome = o
			close(w.woken)
		}
		k.held, k.waiters = false, nil
	case len(k.waiters) == 0:
		k.held, k.waiters = false, nil
	default:
		close(k.waiters[0].woken)
		k.waiters = k.waiters[1:]
	}
	m.set(key, k)
}

// lockAll locks the keys of recs, in the order of their hashes.
func (m *memory) lockAll(ctx context.Context, recs []dedup.Record) (unlock func(), err error) {
	var held []dedup.KeyHash
	unlock = func() {
		for _, key := range held {
			m.unlock(key, keyOutcome{})
		}
	}
	for _, rec := range recs {
		held = append(held, rec.Key.Hash())
	}
	slices.SortFunc(held, dedup.KeyHash.Compare)
	for i, key := range held {
		o := keyOutcome{committed: true}
		for o.decided() && err == nil {
			o, err = m.lock(ctx, key)
		}
		if err != nil {
			held = held[:i]
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// keyUse is an item's need of a key.
type keyUse struct {
	key   dedup.KeyHash
	item  int
	alias bool
}

// lockKeys locks the keys of all items, in the order of their hashes. An item whose key another call commits meanwhile
// is done. An item whose key another call does not give up in time is refused as in flight.
func (b *batch[TTx]) lockKeys(ctx context.Context) (unlock func()) {
	if b.options.keyWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.options.keyWait, dedup.ErrInFlight)
		defer cancel()
	}
	uses := keyUses(b.items)
	locked := uses[:0] // one use for each key; it overwrites only what was read before
	for len(uses) > 0 {
		n := 1
		for n < len(uses) && uses[n].key == uses[0].key {
			n++
		}
		if b.lockKey(ctx, uses[:n]) {
			locked = append(locked, uses[0])
		}
		uses = uses[n:]
	}
	return func() {
		for _, u := range locked {
			it := &b.items[u.item]
			b.c.memory.unlock(u.key, it.outcome(u.alias))
		}
	}
}

// keyUses lists which items need which keys, in the order of the hashes. For each key, the items that have it as their
// own come before those that have it as an alias.
func keyUses(items []item) []keyUse {
	uses := make([]keyUse, 0, len(items))
	for i := range items {
		it := &items[i]
		if it.rec.Key.ID == "" {
			continue
		}
		uses = append(uses, keyUse{key: it.hash, item: i})
		for _, alias := range it.aliases {
			uses = append(uses, keyUse{key: alias.Key.Hash(), item: i, alias: true})
		}
	}
	slices.SortStableFunc(uses, func(a, b keyUse) int {
		if c := a.key.Compare(b.key); c != 0 || a.alias == b.alias {
			return c
		}
		if a.alias {
			return 1
		}
		return -1
	})
	return uses
}

// lockKey reports whether the key of uses, which all have the same key, is locked now.
func (b *batch[TTx]) lockKey(ctx context.Context, uses []keyUse) bool {
	for {
		other, err := b.c.memory.lock(ctx, uses[0].key)
		switch {
		case err != nil: // ErrInFlight, or ctx has ended
			for _, u := range uses {
				it := &b.items[u.item]
				it.refused = fmt.Errorf("wait for %v in this process: %w", it.rec.Key, err)
			}
			return false
		case !other.decided():
			return true
		case b.adoptOutcome(uses, other):
			return false
		}
	}
}

// outcome returns what waiters for a key of it learn; alias: the key is only an alias of it.
func (it *item) outcome(alias bool) keyOutcome {
	if alias {
		return keyOutcome{}
	}
	return keyOutcome{committed: it.committed, fingerprint: it.claimed, parked: it.parked}
}

// adoptOutcome makes the items of uses duplicates of the message that another call committed, or copies of one that it
// parked, if that decides all of them.
func (b *batch[TTx]) adoptOutcome(uses []keyUse, o keyOutcome) bool {
	if slices.ContainsFunc(uses, func(u keyUse) bool { return u.alias || !o.decides(&b.items[u.item], b.arrived) }) {
		return false
	}
	for _, u := range uses {
		if o.parked != nil {
			b.adoptPark(u.item, o.parked)
			continue
		}
		it := &b.items[u.item]
		it.done = true
		b.pass.outcome(u.item, MessageOutcome{Outcome: observe.Duplicate, Key: it.rec.Key})
	}
	return true
}

// decides reports whether the outcome is that of it, too, whose delivery came when arrived.
func (o keyOutcome) decides(it *item, arrived time.Time) bool {
	if o.parked != nil {
		return o.parked.standsFor(it, arrived)
	}
	return o.fingerprint.Matches(it.rec.Fingerprint)
}
