package decide

import "slices"

// Work is a list of messages, by their places, that share as few transactions as possible. Next returns those for the
// next transaction; after it, one of Committed, Deferred, Again, Around and Halve says what has become of them.
//
// While transactions fail in a row, each takes half as many messages as the one before: otherwise each failing message
// would cost a claim of all messages that follow it.
type Work struct {
	most  int    // messages of a transaction; 0: no limit
	parts []part // the last one is next
	tried int    // messages of the last part that Next has returned
}

// part are messages that may share transactions, and are decided before the parts that come earlier in Work.parts.
type part struct {
	todo   []int
	most   int  // of the next transaction
	failed bool // the latest transaction of the part failed
	before int  // how many culprits come after the part
}

// NewWork returns the work of todo. A transaction has at most that many messages; 0: no limit.
func NewWork(todo []int, most int) *Work {
	w := &Work{most: most}
	w.add(todo, 0)
	return w
}

func (w *Work) limited(n int) int {
	if w.most > 0 {
		return min(n, w.most)
	}
	return n
}

// add makes todo the next part.
func (w *Work) add(todo []int, before int) {
	if len(todo) > 0 {
		w.parts = append(w.parts, part{todo: todo, most: w.limited(len(todo)), before: before})
	}
}

// Next returns the messages for the next transaction, at most limit if that is not 0. It returns none when all are
// decided.
func (w *Work) Next(limit int) []int {
	for len(w.parts) > 0 && len(w.parts[len(w.parts)-1].todo) == 0 {
		w.parts = w.parts[:len(w.parts)-1]
	}
	if len(w.parts) == 0 {
		return nil
	}
	p := w.last()
	if w.tried = min(p.most, len(p.todo)); limit > 0 {
		w.tried = min(w.tried, limit)
	}
	return p.todo[:w.tried]
}

func (w *Work) last() *part { return &w.parts[len(w.parts)-1] }

// Before returns how many messages are tried alone after those that Next has returned, because they are known to fail.
func (w *Work) Before() int { return w.last().before }

// Committed says that nothing is left to do for the messages.
func (w *Work) Committed() {
	p := w.last()
	p.most, p.failed = w.limited(2*min(p.most, len(p.todo))), false
	p.todo = p.todo[w.tried:]
}

// Deferred says that the transaction has failed, and that all of its messages are decided or left for another delivery.
func (w *Work) Deferred() { w.failed(w.tried) }

// failed moves on to the messages after the first n.
func (w *Work) failed(n int) {
	p := w.last()
	if p.failed {
		p.most = max(w.tried/2, 1)
	}
	p.failed = true
	p.todo = p.todo[n:]
}

// Again tries todo, which are some of the messages, once more.
func (w *Work) Again(todo []int) {
	before := w.Before()
	w.failed(w.tried)
	w.add(todo, before)
}

// Halve tries both halves of todo, which are some of the messages.
func (w *Work) Halve(todo []int) {
	before := w.Before()
	w.failed(w.tried)
	w.add(todo[len(todo)/2:], before)
	w.add(todo[:len(todo)/2], before)
}

// Around tries each culprit alone, and those of todo that are before, between and after the culprits together. todo are
// some of the messages, and culprits are places in todo, ascending. The messages after a single culprit are tried
// together with those that follow.
func (w *Work) Around(todo, culprits []int) {
	p, before := w.last(), w.Before()
	if len(culprits) == 1 {
		at := culprits[0]
		w.failed(slices.Index(p.todo, todo[at]) + 1)
		w.add(todo[at:at+1], before)
		w.add(todo[:at], before+1)
		return
	}
	w.failed(w.tried)
	to := len(todo)
	for _, at := range slices.Backward(culprits) {
		w.add(todo[at+1:to], before)
		w.add(todo[at:at+1], before)
		to = at
	}
	w.add(todo[:to], before)
}
