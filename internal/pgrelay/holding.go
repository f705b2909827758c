package pgrelay

import (
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/wakes"
	"github.com/txonce/txonce/outbox/driver"
)

// holding is what a session believes to hold. The database decides which session holds a shard: this is its last
// answer, and may be out of date. It is safe for concurrent use.
type holding struct {
	wakes *wakes.Subscription

	mu        sync.Mutex
	begun     bool
	closed    bool      // Close was called, or the hold has expired
	until     time.Time // the end of the hold
	shards    shares.Held
	notified  map[int]bool // held shards that got messages since they were last polled
	nextGroup int          // the group of shards that the next Lease with Want.Groups polls
}

// state reports whether the hold was begun, and whether the session is closed.
func (h *holding) state() (begun, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun, h.closed
}

// ranOut reports whether the hold has expired by this process's clock. The process counts from before the last Renew
// was sent, so it never notices too late.
func (h *holding) ranOut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed || h.begun && time.Now().After(h.until)
}

// end ends the hold, and reports whether it was begun.
func (h *holding) end() (begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	clear(h.shards)
	return h.begun
}

// renewed updates the held shards to what the database says.
func (h *holding) renewed(state *shares.State, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.until = true, until
	h.shards.Set(state.Tokens)
}

// summary returns until when the session holds how many shards.
func (h *holding) summary() (until time.Time, shards int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until, len(h.shards)
}

// leasable marks as busy, and returns, the shards that the next Lease may poll: those of the current group that are not
// busy, have no leased messages and do not cool down. done ends the marking.
func (h *holding) leasable(want driver.Want, cools func(shard int, token int64) bool) (shards []int, done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notice()
	parts, everywhere := max(want.Groups, 1), !want.Notified
	group := h.nextGroup % parts
	if parts > 1 {
		h.nextGroup = group + 1
	}
	for i, n := range h.shards.Numbers() {
		s := h.shards[n]
		if i%parts == group && (everywhere || h.notified[n]) && !s.Leaving && s.Idle() && !cools(n, s.Token) {
			delete(h.notified, n)
			shards = append(shards, n)
		}
	}
	borrowed := h.shards.Borrow(shards)
	return shards, func() { h.free(borrowed) }
}

// notice records the notifications since the last poll. The caller holds mu.
func (h *holding) notice() {
	notified, all := h.wakes.Take()
	if all {
		notified = h.shards.Numbers()
	}
	for _, n := range notified {
		if h.shards[n] != nil {
			h.notified[n] = true
		}
	}
}

// borrow marks as busy, and returns, those of shards that are idle. done ends the marking.
func (h *holding) borrow(shards []int16) (borrowed []int, done func()) {
	numbers := make([]int, len(shards))
	for i, n := range shards {
		numbers[i] = int(n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.shards.Borrow(numbers)
	return held.Numbers(), func() { h.free(held) }
}

func (h *holding) free(borrowed shares.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	borrowed.Free()
}

// update calls f with the held shards.
func (h *holding) update(f func(shards shares.Held)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.shards)
}

// numbers returns the held shards.
func (h *holding) numbers() (shards []int) {
	h.update(func(held shares.Held) { shards = held.Numbers() })
	return shards
}

// tokens returns the numbers and tokens of those of shards that are held, as columns for a statement. The tokens may be
// out of date.
func (h *holding) tokens(shards []int) (numbers []int16, tokens []int64) {
	h.update(func(held shares.Held) {
		for _, n := range shards {
			if s := held[n]; s != nil {
				numbers, tokens = append(numbers, int16(n)), append(tokens, s.Token)
			}
		}
	})
	return numbers, tokens
}

// drop forgets the shards of a settlement that are not in mine.
func (h *holding) drop(of *settlement, mine []int16) {
	h.update(func(held shares.Held) {
		for i, n := range of.shards {
			if s := held[int(n)]; s != nil && s.Token == of.tokens[i] && !slices.Contains(mine, n) {
				delete(held, int(n))
			}
		}
	})
}
