package webhook

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var errBudget = errors.New("webhook: the bodies in memory have Config.MaxInFlight bytes")

// budget limits the bytes of the bodies that are in memory. A body takes a share when it begins to be read, and more as
// it grows, so that a sender who only declares a large body takes little.
//
// Bodies that grow side by side could all wait for each other. So when nothing is left, one of them at a time, the
// express, may go on beyond most until it is done. At most, the bodies have most bytes and those of one body.
type budget struct {
	most int64

	mu      sync.Mutex
	used    int64
	express *share
	waiting []*waiter // the first one is served first
}

type waiter struct {
	share   *share
	n       int64
	granted chan struct{}
}

// share is what one body has taken. Its owners keep it until each has called done.
type share struct {
	budget *budget
	waited time.Duration // in take, which one goroutine calls
	n      int64         // guarded by budget.mu
	owners int           // guarded by budget.mu
}

// share returns a share of no bytes, with one owner.
func (b *budget) share() *share { return &share{budget: b, owners: 1} }

// take adds n bytes to s. It waits for them until ctx ends.
func (s *share) take(ctx context.Context, n int64) error {
	b := s.budget
	b.mu.Lock()
	if len(b.waiting) == 0 && b.grant(s, n) || s == b.express && b.grant(s, n) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{share: s, n: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	began := time.Now()
	defer func() { s.waited += time.Since(began) }()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.serve() // the next one may need less
		return errBudget
	}
	return nil // granted at the same moment
}

// grant gives n bytes to s if there are any. b.mu is held.
func (b *budget) grant(s *share, n int64) bool {
	switch {
	case s == b.express, b.used+n <= b.most:
	case b.express == nil:
		b.express = s
	default:
		return false
	}
	s.n += n
	b.used += n
	return true
}

// serve grants what the first waiters need. b.mu is held.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.grant(b.waiting[0].share, b.waiting[0].n) {
		close(b.waiting[0].granted)
		b.waiting = slices.Delete(b.waiting, 0, 1)
	}
}

// give returns n bytes.
func (s *share) give(n int64) {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.n -= n
	s.budget.used -= n
	s.budget.serve()
}

// keep adds an owner, such as the work that outlives its request.
func (s *share) keep() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.owners++
}

// done ends the ownership of one owner. The last one returns all bytes.
func (s *share) done() {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.owners--; s.owners > 0 {
		return
	}
	b.used -= s.n
	s.n = 0
	if b.express == s {
		b.express = nil
	}
	b.serve()
}
