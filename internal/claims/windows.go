package claims

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/storekit"
)

// Window is a row of txonce_windows: that Consumer claims under a window of Seconds.
type Window struct {
	Consumer string
	Seconds  int64
}

// WindowOf returns the window that rec is registered under: whole seconds, rounded down, because a row that is kept
// longer than the horizon knows of is safe, and one kept shorter is not.
func WindowOf(rec dedup.Record) Window {
	return Window{Consumer: rec.Key.Consumer, Seconds: int64(rec.Keep() / time.Second)}
}

// Compare orders windows for those who lock several.
func (w Window) Compare(v Window) int {
	return cmp.Or(strings.Compare(w.Consumer, v.Consumer), cmp.Compare(w.Seconds, v.Seconds))
}

// Leases remembers until when the table says that this store's windows are in use, so that a claim need not ask. It
// must only be told of what is committed: a registration that rolls back with someone's transaction would leave claims
// behind that no horizon knows of. The zero value is ready, and safe for concurrent use.
type Leases struct {
	mu     sync.Mutex
	leases map[Window]lease
}

type lease struct {
	until time.Time // used_until in the table, by the database's clock
	asked time.Time // this machine's clock before the registration was sent
}

// Due returns those of ws that must be registered before the next claim under them: the unknown, and those whose lease
// is half used up. now is this machine's clock; where it stands still with the machine, Cover finds out.
func (l *Leases) Due(ws []Window, now time.Time) (due []Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ws {
		if lease, known := l.leases[w]; !known || now.Sub(lease.asked) >= storekit.UseFor/2 {
			due = append(due, w)
		}
	}
	return due
}

// Registered notes that w's row says until, and that this is committed. asked is this machine's clock before the
// registration was sent.
func (l *Leases) Registered(w Window, until, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases == nil {
		l.leases = make(map[Window]lease)
	}
	if old, known := l.leases[w]; !known || old.until.Before(until) {
		l.leases[w] = lease{until, asked}
	}
}

// Cover reports whether a claim under ws, made at clock or a little earlier by the database's clock, was registered.
// If not, the claim must be undone: what was not covered is due again.
func (l *Leases) Cover(ws []Window, clock time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	covered := true
	for _, w := range ws {
		if lease, known := l.leases[w]; !known || clock.After(lease.until) {
			delete(l.leases, w)
			covered = false
		}
	}
	return covered
}
