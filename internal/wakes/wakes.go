// Package wakes notifies the sessions of relays in this process about commits.
package wakes

import (
	"maps"
	"slices"
	"sync"
)

// Broadcaster notifies all subscriptions. The zero value has none. It is safe for concurrent use.
type Broadcaster struct {
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription holds the notifications that one session has not read yet.
type Subscription struct {
	wake   chan struct{} // gets one value for any number of commits
	mu     *sync.Mutex   // the broadcaster's
	shards map[int]bool
	all    bool // any shard may have got messages
}

// Subscribe adds a subscription. stop removes it.
func (b *Broadcaster) Subscribe() (sub *Subscription, stop func()) {
	sub = &Subscription{wake: make(chan struct{}, 1), mu: &b.mu, shards: map[int]bool{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[*Subscription]struct{}{}
	}
	b.subs[sub] = struct{}{}
	return sub, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, sub)
	}
}

// Wake notifies the subscriptions that messages of some shards were committed. If shards is nil, any shard may have got
// messages.
func (b *Broadcaster) Wake(shards []int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		sub.all = sub.all || shards == nil
		for _, n := range shards {
			sub.shards[int(n)] = true
		}
		select {
		case sub.wake <- struct{}{}:
		default: // the session has not read the last value yet
		}
	}
}

// Wake returns a channel that gets a value after notifications.
func (s *Subscription) Wake() <-chan struct{} { return s.wake }

// Take returns the shards with notifications since the last call. all: any shard may have got messages.
func (s *Subscription) Take() (shards []int, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shards, all = slices.Sorted(maps.Keys(s.shards)), s.all
	clear(s.shards)
	s.all = false
	return shards, all
}
