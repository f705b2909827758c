package pgxstore

import (
	"context"
	"sync"
	"time"
)

// Wake tells relays that a transaction of the caller's own, in which it has called Enqueue, is committed: those on this
// Store at once, those elsewhere by a NOTIFY. Without it they find the messages when they next look. InTx does it by itself.
//
// It returns at once. What it starts ends by itself, some milliseconds after the last call; ctx gives it values, no limit.
func (s *Store) Wake(ctx context.Context) {
	s.wakes.wake()
	s.notify(ctx)
}

// broadcaster wakes whoever waits for commits in this process.
type broadcaster struct {
	mu      sync.Mutex
	waiting map[chan struct{}]struct{}
}

// subscribe returns a channel that gets a value after any number of calls of wake, until stop is called.
func (b *broadcaster) subscribe() (wake <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[chan struct{}]struct{}{}
	}
	b.waiting[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, ch)
	}
}

func (b *broadcaster) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.waiting {
		select {
		case ch <- struct{}{}:
		default: // it has yet to look at the last one
		}
	}
}

const (
	notifyPause = 5 * time.Millisecond // between two NOTIFYs of a Store
	notifyLimit = time.Second          // for one
)

// notifier sends NOTIFY for a Store, one for all commits of a while.
type notifier struct {
	mu      sync.Mutex
	running bool      // a goroutine is at it
	again   bool      // there was a commit since it last began a NOTIFY
	here    time.Time // until then a session on this Store holds all shards
}

// holdsAllUntil says that a session on this Store holds all shards until then, by this process's clock, so that nobody
// elsewhere needs to be woken; zero: it does not, or no longer.
func (s *Store) holdsAllUntil(t time.Time) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	s.notifier.here = t
}

// notify wakes relays elsewhere. The goroutine lives for as long as commits come, and a few milliseconds longer. It holds
// nothing but, for one statement, a connection of the pool, for which Pool.Close waits; so nobody needs to wait for it.
func (s *Store) notify(ctx context.Context) {
	n := &s.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	n.again = time.Now().After(n.here)
	if !n.again || n.running {
		return
	}
	n.running = true
	go s.notifyWhileCommits(context.WithoutCancel(ctx))
}

func (s *Store) notifyWhileCommits(ctx context.Context) {
	pause := time.NewTimer(notifyPause)
	defer pause.Stop()
	for s.notifier.next() {
		s.notifyOnce(ctx)
		pause.Reset(notifyPause)
		<-pause.C
	}
}

// next reports whether there is reason for another NOTIFY; if not, the next commit starts another goroutine.
func (n *notifier) next() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = n.again
	n.again = false
	return n.running
}

// notifyOnce sends it in a transaction of its own. When it fails, relays find the messages by looking.
func (s *Store) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if rows, err := s.cfg.Pool.Query(ctx, s.writes.Notify); err == nil { // Exec would have it planned each time
		rows.Close()
	}
}
