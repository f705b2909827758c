package shares

import (
	"maps"
	"slices"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Shard is a shard that a session holds, as far as the session knows.
type Shard struct {
	Token   int64
	Leased  map[int64]bool // messages that are leased, by seq
	Busy    bool           // a Lease reads the shard or Maintain changes it, so no other Lease may read it
	Leaving bool           // another session waits for the shard, so no Lease reads it
}

// Idle reports whether the shard has no leased messages and is not busy.
func (s *Shard) Idle() bool { return !s.Busy && len(s.Leased) == 0 }

// Held has the shards that a session holds, by number. The database decides which session holds a shard; Held is its
// last answer, and may be out of date. Held is not safe for concurrent use.
type Held map[int]*Shard

// Numbers returns the numbers of the shards in order.
func (h Held) Numbers() []int { return slices.Sorted(maps.Keys(h)) }

// Tokens returns the token of each shard.
func (h Held) Tokens() map[int]int64 {
	tokens := make(map[int]int64, len(h))
	for n, s := range h {
		tokens[n] = s.Token
	}
	return tokens
}

// Set sets the shards to those that the database has listed with their tokens. None is leaving any more.
func (h Held) Set(tokens map[int]int64) {
	for n, s := range h {
		s.Leaving = false
		if _, mine := tokens[n]; !mine {
			delete(h, n)
		}
	}
	h.Add(tokens)
}

// Add adds shards. A shard with another token than before was held by another session meanwhile, so nothing of it is
// leased.
func (h Held) Add(tokens map[int]int64) {
	for n, token := range tokens {
		if s := h[n]; s == nil || s.Token != token {
			h[n] = &Shard{Token: token, Leased: map[int64]bool{}}
		}
	}
}

// Borrow marks as busy, and returns, the idle ones of some shards. Call Free on what it returns.
func (h Held) Borrow(numbers []int) (borrowed Held) {
	borrowed = Held{}
	for _, n := range numbers {
		if s := h[n]; s != nil && s.Idle() {
			s.Busy = true
			borrowed[n] = s
		}
	}
	return borrowed
}

// Free ends what Borrow began.
func (h Held) Free() {
	for _, s := range h {
		s.Busy = false
	}
}

// GiveBack removes n shards, and returns the numbers of those that the caller must give back now: shards that are idle.
// If these are too few, other shards leave: RemoveLeaving removes them when their leased messages are settled.
func (h Held) GiveBack(n int) (idle []int) {
	idle = h.remove(n, (*Shard).Idle)
	left := n - len(idle)
	for _, s := range h {
		s.Leaving = left > 0
		left--
	}
	return idle
}

// RemoveLeaving removes the leaving shards that are idle, and returns their numbers.
func (h Held) RemoveLeaving() (idle []int) {
	return h.remove(len(h), func(s *Shard) bool { return s.Leaving && s.Idle() })
}

func (h Held) remove(n int, which func(*Shard) bool) (removed []int) {
	for number, s := range h {
		if len(removed) < n && which(s) {
			removed = append(removed, number)
			delete(h, number)
		}
	}
	return removed
}

// Lease records that messages are leased. A shard that was lost meanwhile is left out; Settle reports that.
func (h Held) Lease(messages []driver.Leased) {
	for i := range messages {
		if s := h[messages[i].Shard]; s != nil {
			s.Leased[messages[i].Seq] = true
		}
	}
}

// Settle records that messages are not leased any more.
func (h Held) Settle(outcomes []driver.Outcome) {
	for i := range outcomes {
		if s := h[outcomes[i].Shard]; s != nil && s.Token == outcomes[i].Token {
			delete(s.Leased, outcomes[i].Seq)
		}
	}
}

// Followed returns the shards where messages behind parked ones must be parked with outcomes: those where outcomes park
// a message whose key must keep its order, and where no message stays leased. A message must not be moved while it is
// being published.
func (h Held) Followed(outcomes []driver.Outcome) (shards []int) {
	left, parks := map[int]int{}, map[int]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		s := h[o.Shard]
		if s == nil {
			continue
		}
		if _, seen := left[o.Shard]; !seen {
			left[o.Shard] = len(s.Leased)
		}
		if s.Leased[o.Seq] {
			left[o.Shard]--
		}
		if o.Verdict == driver.Parked && o.OrderingKey != "" && o.ParkPolicy != outbox.SkipMessage {
			parks[o.Shard] = true
		}
	}
	for n := range parks {
		if left[n] <= 0 {
			shards = append(shards, n)
		}
	}
	slices.Sort(shards)
	return shards
}
