package consumer

import (
	"context"
	"slices"
	"sync"

	"github.com/txonce/txonce/dedup"
)

// keyLock makes copies of one message wait for each other here, and not on database connections. Whoever commits a key
// hands the outcome to all that wait for it, so that a storm of copies costs one transaction. It holds memory only for
// keys in use.
type keyLock struct {
	mu   sync.Mutex
	keys map[dedup.KeyHash][]*keyWaiter // there while somebody holds the key
}

type keyWaiter struct {
	woken   chan struct{}
	outcome outcome
}

// outcome is what came of a key.
type outcome struct {
	committed   bool
	fingerprint dedup.Fingerprint // of what was committed
}

// lock waits until the caller holds key, or until its holder has committed: then it does not hold the key, and learns
// the outcome.
func (l *keyLock) lock(ctx context.Context, key dedup.KeyHash) (outcome, error) {
	l.mu.Lock()
	waiters, held := l.keys[key]
	if !held {
		if l.keys == nil {
			l.keys = map[dedup.KeyHash][]*keyWaiter{}
		}
		l.keys[key] = nil
		l.mu.Unlock()
		return outcome{}, nil
	}
	w := &keyWaiter{woken: make(chan struct{})}
	l.keys[key] = append(waiters, w)
	l.mu.Unlock()

	select {
	case <-w.woken:
		return w.outcome, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	select {
	case <-w.woken: // in the same moment
		l.mu.Unlock()
		return w.outcome, nil
	default:
	}
	l.keys[key] = slices.DeleteFunc(l.keys[key], func(q *keyWaiter) bool { return q == w })
	l.mu.Unlock()
	return outcome{}, context.Cause(ctx)
}

// lockAll locks the keys of recs, in the order that everybody locks in.
func (l *keyLock) lockAll(ctx context.Context, recs []dedup.Record) (unlock func(), err error) {
	var held []dedup.KeyHash
	unlock = func() {
		for _, key := range held {
			l.unlock(key, outcome{})
		}
	}
	for _, rec := range recs {
		held = append(held, rec.Key.Hash())
	}
	slices.SortFunc(held, dedup.KeyHash.Compare)
	for i, key := range held {
		o := outcome{committed: true}
		for o.committed && err == nil {
			o, err = l.lock(ctx, key)
		}
		if err != nil {
			held = held[:i]
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// unlock gives key to whoever has waited longest, or, where it was committed, the outcome to everybody.
func (l *keyLock) unlock(key dedup.KeyHash, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiters := l.keys[key]
	switch {
	case o.committed:
		for _, w := range waiters {
			w.outcome = o
			close(w.woken)
		}
		delete(l.keys, key)
	case len(waiters) == 0:
		delete(l.keys, key)
	default:
		l.keys[key] = waiters[1:]
		close(waiters[0].woken)
	}
}
