package consumer

import (
	"context"
	"log/slog"
	"sync"

	"github.com/txonce/txonce/dedup"
)

const (
	// inFlightToLog is how many times in a row a key is found in flight elsewhere before that is logged: a frozen process
	// keeps its claims until the database ends its transaction.
	inFlightToLog = 10

	// historyMost limits the memory. A message that is forgotten only gets some more attempts.
	historyMost = 10_000
)

// history remembers by key what happened to messages in this process since they were last processed or parked. The zero
// value is ready to use, and safe for concurrent use.
type history struct {
	mu      sync.Mutex
	pasts   map[dedup.KeyHash]*past
	commits int // messages whose handler ran and whose transaction was committed
}

// past is the history of one message.
type past struct {
	survived bool // this process has tried the message alone and has not ended
	failures int  // attempts that counted
	inFlight int  // how many times in a row another transaction held the key
	faults   int  // database errors that the message met alone; without a commit of others between them, two count as one
	times    int  // the same, each of them
	commits  int  // history.commits at the latest fault
	timed    bool // the latest one was an exceeded limit of time
	blamed   bool // such errors count

	contended        int // how many times in a row it lost to other transactions
	contendedCommits int // history.commits at the latest time
}

// of returns the history of key, a new one if there is none. The caller holds mu.
func (h *history) of(key dedup.KeyHash) *past {
	if p := h.pasts[key]; p != nil {
		return p
	}
	if h.pasts == nil {
		h.pasts = map[dedup.KeyHash]*past{}
	}
	for old := range h.pasts {
		if len(h.pasts) < historyMost {
			break
		}
		delete(h.pasts, old)
	}
	p := &past{}
	h.pasts[key] = p
	return p
}

// past returns the history of key, an empty one if there is none.
func (h *history) past(key dedup.KeyHash) past {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pasts[key]; p != nil {
		return *p
	}
	return past{}
}

// failed counts an attempt. It returns how many this process has seen.
func (h *history) failed(key dedup.KeyHash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	p.failures++
	return p.failures
}

// fault counts a database error that a message met alone; timed: it exceeded a limit of time. others reports whether other messages were
// committed since the message's previous fault.
func (h *history) fault(key dedup.KeyHash, timed bool) (faults, times int, others bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	p.times++
	p.timed = timed
	others = p.faults > 0 && h.commits > p.commits
	if p.faults == 0 || others {
		p.faults++
	}
	p.commits = h.commits
	return p.faults, p.times, others
}

// blame records that the message's errors of the database count. first reports that they did not before.
func (h *history) blame(key dedup.KeyHash) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	first, p.blamed = !p.blamed, true
	return first
}

// faulty returns how many messages have met database errors alone and have not been committed or parked since.
func (h *history) faulty() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pasts {
		if p.faults > 0 {
			n++
		}
	}
	return n
}

// timedOut reports whether the message's latest fault was an exceeded limit of time.
func (h *history) timedOut(key dedup.KeyHash) bool { return h.past(key).timed }

// contend counts that a message lost to other transactions. It returns how many times in a row that was so, and whether other messages were
// committed since the previous time.
func (h *history) contend(key dedup.KeyHash) (times int, others bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	p.contended++
	p.timed = false
	others = h.commits > p.contendedCommits
	p.contendedCommits = h.commits
	return p.contended, others
}

// faults returns how many database errors the message has met alone.
func (h *history) faults(key dedup.KeyHash) int { return h.past(key).faults }

// foundInFlight counts that another transaction holds the item's key, and returns how many times in a row that was so. It
// logs the key once.
func (h *history) foundInFlight(ctx context.Context, logger *slog.Logger, it *item, err error) int {
	h.mu.Lock()
	p := h.of(it.hash)
	p.inFlight++
	n := p.inFlight
	h.mu.Unlock()
	if n == inFlightToLog {
		logger.WarnContext(ctx, "message is deferred again and again: another transaction holds its key; is a process frozen?",
			append(it.attrs(), "times", n, "error", err)...)
	}
	return n
}

// wasInFlight reports whether key was in flight when it was tried last.
func (h *history) wasInFlight(key dedup.KeyHash) bool { return h.past(key).inFlight > 0 }

// knows reports whether this process has tried key before, with an outcome.
func (h *history) knows(key dedup.KeyHash) bool {
	p := h.past(key)
	return p.survived || p.failures > 0 || p.faults > 0 || p.contended > 0
}

// survived records that this process has tried key alone and has not ended.
func (h *history) survived(key dedup.KeyHash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(key).survived = true
}

// forget forgets a message that is committed or parked. ran says that its handler's work was committed.
func (h *history) forget(key dedup.KeyHash, ran bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ran {
		h.commits++
	}
	delete(h.pasts, key)
}
