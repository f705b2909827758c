package claims

import "sync/atomic"

// History numbers the servers that a Store has worked with. A server is known by a text that each claim returns: it is
// another one after a failover, and, on PostgreSQL, after a restart. The zero value is ready to use. It is safe for
// concurrent use.
type History struct{ last atomic.Pointer[met] }

type met struct {
	server string
	number int64
}

// Saw notes that server has answered, and returns the number of its history: that of the last call, or one more if the
// last call was for another server.
func (h *History) Saw(server string) int64 {
	for {
		last := h.last.Load()
		if last != nil && last.server == server {
			return last.number
		}
		next := &met{server: server, number: 1}
		if last != nil {
			next.number += last.number
		}
		if h.last.CompareAndSwap(last, next) {
			return next.number
		}
	}
}

// Last returns the number of the history, and its server. 0: no server has answered yet.
func (h *History) Last() (number int64, server string) {
	if last := h.last.Load(); last != nil {
		return last.number, last.server
	}
	return 0, ""
}
