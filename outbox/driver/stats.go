package driver

import (
	"cmp"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Count adds to s n messages of topic that are in one state and have been due since due. failing of them failed, with
// an error whose text is text. It is for implementations of outbox.Operations, which set Now before. It is not safe for
// concurrent use.
func Count(s *outbox.Stats, topic string, state State, n int64, due time.Time, failing int64, text string) {
	if n <= 0 {
		return
	}
	t := s.Topics[topic]
	age := max(0, s.Now.Sub(due))
	switch state {
	case StatePending:
		s.Pending, t.Pending, t.Failing = s.Pending+n, t.Pending+n, t.Failing+failing
		s.PendingAge, t.PendingAge = max(s.PendingAge, age), max(t.PendingAge, age)
		t.Error = cmp.Or(t.Error, text)
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
		s.Topics = make(map[string]outbox.TopicStats)
	}
	s.Topics[topic] = t
}

// State is an argument of Count.
type State int

// States.
const (
	StatePending State = iota
	StateDelayed
	StateParked
	StateWaiting
)
