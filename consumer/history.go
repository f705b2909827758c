package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/txonce/txonce/dedup"
)

const (
	// faultsUncounted is how many errors of the database one message may meet by itself, with commits of other messages
	// between each two, before further ones count as its attempts: a handler that always breaks its connection, idles
	// beyond the database's limit, or deadlocks with itself. Ambiguous errors count from the second one on.
	faultsUncounted = 20

	// historyMost bounds the memory. What is forgotten costs a message some attempts more, and nothing else.
	historyMost = 10_000
)

// history remembers by key what messages met in this process since they were last processed or parked. The zero value is
// ready, and safe for concurrent use.
type history struct {
	mu      sync.Mutex
	pasts   map[dedup.KeyHash]*past
	commits int // messages whose handler ran and whose transaction was committed
}

// past is the history of one message.
type past struct {
	failures int // attempts that counted
	faults   int // of the database, met by this message alone; two without a commit of others between them are one
	commits  int // history.commits at the latest of faults
}

// of returns what is known of key. The caller holds mu.
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

// failed counts an attempt, and returns how many this process has seen.
func (h *history) failed(key dedup.KeyHash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	p.failures++
	return p.failures
}

// fault counts that a message met an error of the database by itself. others reports that other messages were committed
// since it last did.
func (h *history) fault(key dedup.KeyHash) (faults int, others bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(key)
	others = p.faults > 0 && h.commits > p.commits
	if p.faults == 0 || others {
		p.faults++
	}
	p.commits = h.commits
	return p.faults, others
}

// faults is how many errors of the database the message of key has met by itself.
func (h *history) faults(key dedup.KeyHash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pasts[key]; p != nil {
		return p.faults
	}
	return 0
}

// knows reports that key has a history.
func (h *history) knows(key dedup.KeyHash) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pasts[key] != nil
}

// survived notes that this process has tried the message of key, and is still there.
func (h *history) survived(key dedup.KeyHash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(key)
}

// over forgets a message that is committed or parked; ran says that its handler's work was committed.
func (h *history) over(key dedup.KeyHash, ran bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ran {
		h.commits++
	}
	if len(h.pasts) > 0 {
		delete(h.pasts, key)
	}
}

// attrs names a message in a log line.
func (it *item) attrs() []any {
	return []any{"consumer", it.rec.Key.Consumer, "key", it.rec.Key.ID, "topic", it.msg.Topic, "position", it.msg.Position}
}

// counts reports whether err, which the database is to blame for at first sight, counts as an attempt of the message that
// met it by itself: other messages are committed meanwhile, and it meets such errors again and again. Where clocks
// disagree nothing is ever counted.
func (b *batch[TTx]) counts(ctx context.Context, it *item, err error) bool {
	if errors.Is(err, dedup.ErrClocks) {
		return false
	}
	uncounted := faultsUncounted
	if c, ok := b.cfg.Store.(dedup.FaultClassifier); ok && c.Ambiguous(err) {
		uncounted = 1
	}
	faults, others := b.history.fault(it.derived)
	if !others || faults <= uncounted {
		return false
	}
	if faults == uncounted+1 {
		b.cfg.Logger.WarnContext(ctx, "message meets an error of the database again while other messages are committed: from now on it counts as an attempt",
			append(it.attrs(), "times", faults, "error", err)...)
	}
	return true
}

// enough reports whether a message that has failed once more is given up on. The attempts that a broker counts may include
// crashes, stops and lost answers, in which no handler failed. So this process must have seen two failures of its own,
// unless the count is so high that crashes alone do not explain it, as where each attempt meets another process.
func (b *batch[TTx]) enough(it *item, attempt int) bool {
	seen := b.history.failed(it.derived)
	most := b.cfg.MaxAttempts
	return attempt >= most && seen >= min(2, most) || attempt >= max(100, 10*most)
}

// postponed takes out of todo what is tried alone, after the rest: messages that met errors of the database by themselves,
// those that may have ended processes, and whatever follows them under their ordering key.
func (b *batch[TTx]) postponed(todo []int) (first, last []int) {
	var keys map[string]bool
	for _, i := range todo {
		it := &b.items[i]
		it.culprit = it.rec.Key.ID != "" && b.history.faults(it.derived) > 0
		if !it.culprit && !keys[it.msg.Key] && !b.suspects(it) {
			first = append(first, i)
			continue
		}
		last = append(last, i)
		if it.msg.Key != "" {
			if keys == nil {
				keys = map[string]bool{}
			}
			keys[it.msg.Key] = true
		}
	}
	return first, last
}
