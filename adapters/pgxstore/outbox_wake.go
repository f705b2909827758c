package pgxstore

import (
	"context"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/debounce"
)

// Wake tells relays that a transaction of the caller's own, in which it has called Enqueue, is committed: those on this
// Store at once, those elsewhere by a NOTIFY. Without it they find the messages when they next look. InTx does it by itself.
//
// It returns at once. What it starts ends by itself, some milliseconds after the last call; ctx gives it values, no limit.
func (s *Store) Wake(ctx context.Context) { s.wake(ctx, nil) }

// wake is Wake for a commit that has put messages into these shards; nil: nobody knows into which.
func (s *Store) wake(ctx context.Context, shards []int16) {
	s.wakes.wake(shards)
	s.notify(ctx)
}

// broadcaster wakes whoever waits for commits in this process.
type broadcaster struct {
	mu      sync.Mutex
	waiting map[*subscription]struct{}
}

// subscription is what one session has been told and has not asked for yet.
type subscription struct {
	wake   chan struct{} // gets a value after any number of commits
	mu     *sync.Mutex   // the broadcaster's
	shards map[int]bool
	all    bool // any shard may have got messages
}

// subscribe is in effect until stop is called.
func (b *broadcaster) subscribe() (sub *subscription, stop func()) {
	sub = &subscription{wake: make(chan struct{}, 1), mu: &b.mu, shards: map[int]bool{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[*subscription]struct{}{}
	}
	b.waiting[sub] = struct{}{}
	return sub, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, sub)
	}
}

func (b *broadcaster) wake(shards []int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.waiting {
		sub.all = sub.all || shards == nil
		for _, n := range shards {
			sub.shards[int(n)] = true
		}
		select {
		case sub.wake <- struct{}{}:
		default: // it has yet to look at the last one
		}
	}
}

// take adds to shards those, among held, of which it was told since the last call.
func (sub *subscription) take(shards map[int]bool, held map[int]*heldShard) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for n := range held {
		if sub.all || sub.shards[n] {
			shards[n] = true
		}
	}
	clear(sub.shards)
	sub.all = false
}

const (
	notifyPause = 5 * time.Millisecond // between two NOTIFYs of a Store
	notifyLimit = 10 * time.Second     // for one, which waits for the disk as a COMMIT does; its end costs the connection
)

// notifier sends NOTIFY for a Store, one for all commits of a while. What it starts holds nothing but, for one statement, a
// connection of the pool, for which Pool.Close waits; so nobody needs to wait for it.
type notifier struct {
	caller debounce.Caller
	mu     sync.Mutex
	here   time.Time // until then a session on this Store holds all shards
}

// holdsAllUntil says that a session on this Store holds all shards until then, by this process's clock, so that nobody
// elsewhere needs to be woken; zero: it does not, or no longer.
func (s *Store) holdsAllUntil(t time.Time) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	s.notifier.here = t
}

// notify wakes relays elsewhere.
func (s *Store) notify(ctx context.Context) {
	s.notifier.mu.Lock()
	elsewhere := time.Now().After(s.notifier.here)
	s.notifier.mu.Unlock()
	if elsewhere {
		s.notifier.caller.Call(ctx, notifyPause, s.notifyOnce)
	}
}

// notifyOnce sends it in a transaction of its own. When it fails, relays find the messages by looking.
func (s *Store) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if s.resolve(ctx, s.cfg.Pool) != nil {
		return // nothing was enqueued
	}
	if rows, err := s.cfg.Pool.Query(ctx, s.writes.Notify); err == nil { // Exec would have it planned each time
		rows.Close()
	}
}
