package sqlstore

import (
	"context"
	"sync"
	"time"
)

const (
	notifyPause = 5 * time.Millisecond // between two NOTIFYs of a Store
	notifyLimit = time.Second          // for one
)

// outboxNotifier sends one NOTIFY for all commits of a while.
type outboxNotifier struct {
	mu      sync.Mutex
	running bool // a goroutine is at it
	again   bool // there was a commit since it last began a NOTIFY
}

// notify wakes relays of adapters/pgxstore elsewhere. The goroutine lives for as long as commits come, and a few milliseconds
// longer. It holds nothing but, for one statement, a connection of the pool; so nobody needs to wait for it.
func (d *postgres) notify(ctx context.Context) {
	n := &d.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	n.again = true
	if n.running {
		return
	}
	n.running = true
	go d.notifyWhileCommits(context.WithoutCancel(ctx))
}

func (d *postgres) notifyWhileCommits(ctx context.Context) {
	pause := time.NewTimer(notifyPause)
	defer pause.Stop()
	for d.notifier.next() {
		d.notifyOnce(ctx)
		pause.Reset(notifyPause)
		<-pause.C
	}
}

// next reports whether there is reason for another NOTIFY; if not, the next commit starts another goroutine.
func (n *outboxNotifier) next() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = n.again
	n.again = false
	return n.running
}

// notifyOnce sends it in a transaction of its own. When it fails, relays find the messages by looking.
func (d *postgres) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	_, _ = d.cfg.DB.ExecContext(ctx, d.box.write.Notify)
}
