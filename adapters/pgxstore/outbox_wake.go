package pgxstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/debounce"
	"github.com/txonce/txonce/internal/dialect"
)

// Wake notifies relays after the caller has committed a transaction with messages from Enqueue. Relays on this Store are
// notified at once, others by NOTIFY. Without Wake, relays find the messages by polling. InTx calls Wake itself.
//
// Wake returns at once. The NOTIFY is sent in the background, within milliseconds. ctx supplies values only; its end does not
// stop the NOTIFY.
func (s *Store) Wake(ctx context.Context) { s.wake(ctx, nil) }

// wake is Wake for a commit with messages in the given shards. If shards is nil, any shard may have got messages.
func (s *Store) wake(ctx context.Context, shards []int16) {
	s.wakes.Wake(shards)
	s.notify(ctx, shards)
}

const (
	notifyPause = 5 * time.Millisecond // between two NOTIFYs of a Store
	notifyLimit = 10 * time.Second     // limits one NOTIFY, which waits for the disk like a COMMIT; when it expires, the connection is closed
)

// notifier sends NOTIFY for a Store, one for all commits within notifyPause. Its goroutine holds no resources except, during
// one statement, a connection of the pool. Pool.Close waits for that connection, so nothing else needs to wait for the
// goroutine.
type notifier struct {
	caller debounce.Caller
	mu     sync.Mutex
	here   time.Time // until then a session on this Store holds all shards

	shards map[int16]bool // with commits since the last NOTIFY
	all    bool           // any shard may have had some
}

// add adds shards to those of the next NOTIFY.
func (n *notifier) add(shards []int16) {
	n.all = n.all || shards == nil
	for _, shard := range shards {
		if n.shards == nil {
			n.shards = map[int16]bool{}
		}
		n.shards[shard] = true
	}
}

// take returns the shards for a NOTIFY, and forgets them. nil: any shard.
func (n *notifier) take() (shards []int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.all {
		shards = slices.Collect(maps.Keys(n.shards))
	}
	clear(n.shards)
	n.all = false
	return shards
}

// holdsAllUntil records that a session on this Store holds all shards until t, by this process's clock, so that relays
// elsewhere need no NOTIFY. The zero time means that no session holds all shards.
func (s *Store) holdsAllUntil(t time.Time) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	s.notifier.here = t
}

// notify notifies relays in other processes.
func (s *Store) notify(ctx context.Context, shards []int16) {
	s.notifier.mu.Lock()
	elsewhere := time.Now().After(s.notifier.here)
	if elsewhere {
		s.notifier.add(shards)
	}
	s.notifier.mu.Unlock()
	if elsewhere {
		s.notifier.caller.Call(ctx, notifyPause, s.notifyOnce)
	}
}

// notifyOnce sends NOTIFY in a transaction of its own. If it fails, relays find the messages by polling.
func (s *Store) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if s.resolve(ctx, s.cfg.Pool) != nil {
		return // without a schema nothing was enqueued
	}
	if rows, err := s.cfg.Pool.Query(ctx, s.writes.Notify, dialect.NotifyShards(s.notifier.take())); err == nil { // Exec would make the server plan the statement each time
		rows.Close()
	}
}
