package consumer

import (
	"sync"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
)

// historyMost limits the memory. A message that is forgotten only gets some more attempts.
const historyMost = 10_000

// history remembers by key what happened to messages in this process since they were last processed or parked. The zero
// value is ready to use, and safe for concurrent use.
type history struct {
	mu      sync.Mutex
	pasts   map[dedup.KeyHash]decide.Past
	commits int // messages whose handler ran and whose transaction was committed
	faulty  int // pasts with Faults
}

// set remembers p. The caller holds mu.
func (h *history) set(key dedup.KeyHash, p decide.Past) {
	before, found := h.pasts[key]
	if h.pasts == nil {
		h.pasts = map[dedup.KeyHash]decide.Past{}
	}
	for old := range h.pasts {
		if found || len(h.pasts) < historyMost {
			break
		}
		h.drop(old)
	}
	h.pasts[key] = p
	if before.Faults == 0 && p.Faults > 0 {
		h.faulty++
	}
}

// drop forgets key. The caller holds mu.
func (h *history) drop(key dedup.KeyHash) {
	if h.pasts[key].Faults > 0 {
		h.faulty--
	}
	delete(h.pasts, key)
}

// past returns what is remembered of key.
func (h *history) past(key dedup.KeyHash) decide.Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pasts[key]
}

// judge decides about a message that failed with f in a transaction of its own, and remembers that.
func (h *history) judge(key dedup.KeyHash, f decide.Failure, n decide.Now) decide.Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pasts[key]
	n.Commits, n.Faulty = h.commits, h.faulty
	if p.Faults > 0 {
		n.Faulty--
	}
	v, after := decide.OfMessage(f, p, n)
	if after != p {
		h.set(key, after)
	}
	return v
}

// survived records that this process has tried key alone and has not ended.
func (h *history) survived(key dedup.KeyHash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pasts[key]
	p.Survived = true
	h.set(key, p)
}

// forget forgets a message that is committed or parked. ran says that its handler's work was committed.
func (h *history) forget(key dedup.KeyHash, ran bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ran {
		h.commits++
	}
	h.drop(key)
}
