// Package counts counts events by message, in a bounded amount of memory.
package counts

import (
	"container/list"
	"sync"
)

// Limit is how many IDs a Counter remembers.
const Limit = 10_000

// Counter counts by ID. When it has more than Limit IDs it forgets the one that was counted first. The zero value is
// ready, and safe for concurrent use.
type Counter struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *count, oldest first
}

type count struct {
	id string
	n  int
}

// Add counts one more for id.
func (c *Counter) Add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		e.Value.(*count).n++
		return
	}
	if c.byID == nil {
		c.byID = map[string]*list.Element{}
	}
	c.byID[id] = c.order.PushBack(&count{id, 1})
	if len(c.byID) > Limit {
		c.remove(c.order.Front())
	}
}

// Of returns the count of id.
func (c *Counter) Of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		return e.Value.(*count).n
	}
	return 0
}

// Forget sets the count of id to 0.
func (c *Counter) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		c.remove(e)
	}
}

func (c *Counter) remove(e *list.Element) {
	delete(c.byID, e.Value.(*count).id)
	c.order.Remove(e)
}
