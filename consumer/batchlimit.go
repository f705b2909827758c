package consumer

import (
	"math"
	"sync"
	"time"
)

// batchLimit limits how many messages share a transaction after the database ended one with an error such as a
// deadlock. Transactions that lock the same rows in different orders deadlock more often the more messages they have,
// and on PostgreSQL each deadlock holds them up for a second. So the limit outlives the pass. After a fault it stays
// for holdFactor times as long as the failed transaction took, and then doubles with each success: faults cost only a
// small part of the time.
type batchLimit struct {
	mu   sync.Mutex
	most int       // 0: no limit
	hold time.Time // the limit does not grow before this time
}

const (
	holdFactor = 20
	holdMost   = time.Minute
)

// now returns how many messages may share the next transaction; 0: no limit.
func (l *batchLimit) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// failed records that the database ended a transaction with n messages, after took.
func (l *batchLimit) failed(n int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = max(n/4, 1)
	if l.most == 0 || n < l.most {
		l.most = n
	}
	if hold := time.Now().Add(min(holdFactor*took, holdMost)); hold.After(l.hold) {
		l.hold = hold
	}
}

// succeeded records that a transaction with n messages was committed.
func (l *batchLimit) succeeded(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == 0 || n < l.most || time.Now().Before(l.hold) {
		return
	}
	if l.most *= 2; l.most > math.MaxInt16 { // larger than any batch
		l.most = 0
	}
}
