package pgxstore

import "github.com/txonce/txonce/outbox"

// DecodeWAL is for tests that look into a slot.
var DecodeWAL = decodeWAL

// WALOpen is how many messages a session holds in memory.
func WALOpen(s outbox.Session) int {
	w := s.(*walSession).window
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}
