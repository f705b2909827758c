package pgxstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/debounce"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/wakes"
)

// notifier notifies relays of commits. It sends one NOTIFY for all commits within notifyPause. Its goroutine holds no
// resources except, during one statement, a connection of the pool. Pool.Close waits for that connection, so nothing
// else needs to wait for the goroutine.
type notifier struct {
	*sessions
	wakes  wakes.Broadcaster // for the relays on this Store
	caller debounce.Caller

	mu      sync.Mutex
	here    time.Time      // until then a session on this Store holds all shards
	pending map[int16]bool // shards with commits since the last NOTIFY
	all     bool           // any shard may have had some
}

const (
	notifyPause = 5 * time.Millisecond // between two NOTIFYs of a Store
	// limits one NOTIFY, which waits for the disk like a COMMIT; when it expires, the connection is closed
	notifyLimit = 10 * time.Second
)

// Wake notifies relays after the caller has committed a transaction with messages from Enqueue. Relays on this Store
// are notified at once, others by NOTIFY. Without Wake, relays find the messages by polling. InTx calls Wake itself.
//
// Wake returns at once. The NOTIFY is sent in the background, within milliseconds. ctx supplies values only; its end
// does not stop the NOTIFY.
func (n *notifier) Wake(ctx context.Context) { n.wake(ctx, nil) }

// wake is Wake for a commit with messages in the given shards. If shards is nil, any shard may have got messages.
func (n *notifier) wake(ctx context.Context, shards []int16) {
	n.wakes.Wake(shards)
	n.notify(ctx, shards)
}

// add adds shards to those of the next NOTIFY.
func (n *notifier) add(shards []int16) {
	n.all = n.all || shards == nil
	for _, shard := range shards {
		if n.pending == nil {
			n.pending = map[int16]bool{}
		}
		n.pending[shard] = true
	}
}

// take returns the shards for a NOTIFY, and forgets them. nil: any shard.
func (n *notifier) take() (shards []int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.all {
		shards = slices.Collect(maps.Keys(n.pending))
	}
	clear(n.pending)
	n.all = false
	return shards
}

// holdsAllUntil records that a session on this Store holds all shards until t, by this process's clock, so that relays
// elsewhere need no NOTIFY. The zero time means that no session holds all shards.
func (n *notifier) holdsAllUntil(t time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.here = t
}

// notify notifies relays in other processes.
func (n *notifier) notify(ctx context.Context, shards []int16) {
	n.mu.Lock()
	elsewhere := time.Now().After(n.here)
	if elsewhere {
		n.add(shards)
	}
	n.mu.Unlock()
	if elsewhere {
		n.caller.Call(ctx, notifyPause, n.notifyOnce)
	}
}

// notifyOnce sends NOTIFY in a transaction of its own. If it fails, relays find the messages by polling.
func (n *notifier) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if n.resolve(ctx, n.cfg.Pool) != nil {
		return // without a schema nothing was enqueued
	}
	if rows, err := n.cfg.Pool.Query(ctx, n.writes.Notify, dialect.NotifyShards(n.take())); err == nil {
		// Exec would make the server plan the statement each time
		rows.Close()
	}
}
