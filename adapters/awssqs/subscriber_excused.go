package awssqs

import "sync"

// excusedMost bounds the memory for messages that others went on with.
const excusedMost = 10_000

// excused counts, by message, the receives of this process that were no attempts: deferrals, stops, lost holds. SQS counts them.
type excused struct {
	mu     sync.Mutex
	counts map[string]int
	order  []string // of their first; may name what is forgotten already
}

func (e *excused) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[string]int{}
	}
	if e.counts[id]++; e.counts[id] > 1 {
		return
	}
	if e.order = append(e.order, id); len(e.order) > excusedMost {
		delete(e.counts, e.order[0])
		e.order = e.order[1:]
	}
}

func (e *excused) of(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[id]
}

func (e *excused) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.counts, id)
}
