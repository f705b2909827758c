package outbox

import (
	"cmp"
	"context"
	"time"
)

// Operations are for people and their dashboards. Stores have them. They are safe for concurrent use, also with relays.
type Operations interface {
	// Stats is cheap enough to be called every ten seconds.
	Stats(ctx context.Context) (Stats, error)

	// Parked lists parked messages by Seq.
	Parked(ctx context.Context, filter ParkedFilter) ([]ParkedMessage, error)

	// Unpark makes parked messages pending again, in their old place within their key, with no attempts counted, and what
	// waits behind them with them. It returns how many of seqs were parked; the others are not an error. See also UnparkAll.
	Unpark(ctx context.Context, seqs ...int64) (int, error)

	// Discard deletes parked messages, which will never be published; what waits behind them goes on. See also DiscardAll.
	Discard(ctx context.Context, seqs ...int64) (int, error)
}

// Stats describe an outbox at a moment.
type Stats struct {
	Pending  int64 // committed, due and not yet confirmed, also those that are leased, or held back after a failure
	Delayed  int64 // whose NotBefore has not come
	Parked   int64 // given up on, or parked behind one that was
	Waiting  int64 // behind a parked message of their key, see BlockKey
	HeldKeys int64 // keys that are held back at the moment

	// The ages to alarm on. A message is due since its NotBefore, or without one since it was enqueued, by the database's clock.
	PendingAge time.Duration // how long the first due of Pending has been due; 0: none is pending
	ParkedAge  time.Duration // how long the first due of Parked and Waiting has been due; 0: there are none

	Now       time.Time // the database's clock
	Estimated bool      // there is so much that numbers and Topics were estimated; a topic with very few messages may be missing
	Topics    map[string]TopicStats
	Relays    []RelayStats
}

// TopicStats are the part of one topic. Its fields mean what those of Stats mean.
type TopicStats struct {
	Pending, Delayed, Parked, Waiting int64
	PendingAge, ParkedAge             time.Duration

	Failing int64  // of Pending: those that were not published when they were tried, or whose topic rests, see TopicError
	Cause   string // why one of Failing was not published; empty: none is failing
}

// Count adds n messages of topic that are pending, or parked, and due since then, failing of them because of cause. It is for
// implementations of Operations, after Now is set.
func (s *Stats) Count(topic string, state State, n int64, due time.Time, failing int64, cause string) {
	if n <= 0 {
		return
	}
	t := s.Topics[topic]
	age := max(0, s.Now.Sub(due))
	switch state {
	case StatePending:
		s.Pending, t.Pending, t.Failing = s.Pending+n, t.Pending+n, t.Failing+failing
		s.PendingAge, t.PendingAge = max(s.PendingAge, age), max(t.PendingAge, age)
		t.Cause = cmp.Or(t.Cause, cause)
	case StateDelayed:
		s.Delayed, t.Delayed = s.Delayed+n, t.Delayed+n
	case StateParked, StateWaiting:
		if state == StateParked {
			s.Parked, t.Parked = s.Parked+n, t.Parked+n
		} else {
			s.Waiting, t.Waiting = s.Waiting+n, t.Waiting+n
		}
		s.ParkedAge, t.ParkedAge = max(s.ParkedAge, age), max(t.ParkedAge, age)
	}
	if s.Topics == nil {
		s.Topics = make(map[string]TopicStats)
	}
	s.Topics[topic] = t
}

// State is where a message of Stats.Count is.
type State int

// States.
const (
	StatePending State = iota
	StateDelayed
	StateParked
	StateWaiting
)

// RelayStats describe a living relay.
type RelayStats struct {
	Name   string
	Shards int
	Until  time.Time // by the database's clock
}

// ParkedFilter selects parked messages that fulfil all of its conditions. The zero value selects all.
type ParkedFilter struct {
	Topic string    // empty: any
	Key   string    // empty: any
	Cause string    // a part of ParkedMessage.Cause, in its case; empty: any
	Since time.Time // parked then or later, by the database's clock; zero: at any time
	Until time.Time // parked before; zero: at any time
	After int64     // Seq of the last one seen
	Limit int       // of Parked: 0 is 100; of UnparkAll and DiscardAll: 0 is no limit
}

// ParkedMessage is a message that was given up on, or that stands behind one.
type ParkedMessage struct {
	Leased          // without Token
	Cause    string // why
	Behind   int64  // Seq of the message of its key that was given up on; 0: this one was
	Waiting  bool   // it goes on by itself when Behind does, see BlockKey
	ParkedAt time.Time
}
