package pgrelay

import "time"

// Starts returns for each held shard the seqs below which polls read nothing: the low, and the skip while it lasts. It
// is for tests.
func (s *Session) Starts() (lows, skips []int64) {
	poll := s.marks.Begin(s.held.tokens(s.held.numbers()))
	return poll.Lows, poll.Skips
}

// MaintainedAgo makes the session believe that Maintain was last called d earlier than it was. It is for tests.
func (s *Session) MaintainedAgo(d time.Duration) {
	s.chores.mu.Lock()
	defer s.chores.mu.Unlock()
	s.chores.maintained, s.chores.at = s.chores.maintained.Add(-d), s.chores.at.Add(-d)
}
