package claims

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Window is a row of txonce_windows: Consumer claims with a window of Seconds.
type Window struct {
	Consumer string
	Seconds  int64
}

// WindowOf returns the window that rec's consumer is registered with. It rounds down to whole seconds: a row may be
// kept longer than the horizon assumes, but never shorter.
func WindowOf(rec dedup.Record) Window {
	return Window{Consumer: rec.Key.Consumer, Seconds: int64(rec.Keep() / time.Second)}
}

// Compare sorts windows: all transactions lock several windows in this order.
func (w Window) Compare(v Window) int {
	return cmp.Or(strings.Compare(w.Consumer, v.Consumer), cmp.Compare(w.Seconds, v.Seconds))
}

// Leases remembers how long each window of this store is registered in the table, so that a claim need not ask the
// database. Only committed registrations may be added: if a registration rolled back with another transaction, the
// horizon would not count claims made under it. The zero value is ready to use. Leases is safe for concurrent use.
type Leases struct {
	mu     sync.Mutex
	leases map[Window]lease
}

type lease struct {
	until time.Time // used_until in the table, by the database's clock
	asked time.Time // this machine's clock before the registration was sent
}

// Due returns the windows that must be registered before the next claim uses them: unknown windows, and those whose
// lease is half over. now is this machine's clock. If that clock was suspended with the machine, Cover notices.
func (l *Leases) Due(ws []Window, now time.Time) (due []Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ws {
		if lease, known := l.leases[w]; !known || now.Sub(lease.asked) >= driver.UseFor/2 {
			due = append(due, w)
		}
	}
	return due
}

// Registered records a committed registration of w that ends at until. asked is this machine's clock before the
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

// Cover reports whether all of ws were registered when a claim was made. clock is the database's clock at the claim or
// a little later. If Cover returns false, the claim must be rolled back, and the windows that were not registered
// become due again.
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
