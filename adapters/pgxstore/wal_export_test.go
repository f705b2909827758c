package pgxstore

import (
	"github.com/jackc/pglogrepl"
	"github.com/txonce/txonce/outbox"
)

// DecodeWAL is for tests that look into a slot.
var DecodeWAL = decodeWAL

// WALOpen is how many messages a session holds in memory.
func WALOpen(s outbox.Session) int {
	w := s.(*walSession).window
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// WALReceived is how far the stream has brought everything.
func WALReceived(s outbox.Session) pglogrepl.LSN {
	lsn, _ := s.(*walSession).window.received()
	return lsn
}
