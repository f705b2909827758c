package claims

import (
	"fmt"
	"sync"

	"github.com/txonce/txonce/dedup"
)

// Names holds the names of the consumers registered on one store. The zero value is ready to use. Names is safe for concurrent
// use.
type Names struct {
	mu    sync.Mutex
	taken map[string]bool
}

// Take reserves name. If the name is taken, the error is dedup.ErrNameTaken.
func (n *Names) Take(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken[name] {
		return fmt.Errorf("%w: %q; close the first Consumer, or give this one another Name", dedup.ErrNameTaken, name)
	}
	if n.taken == nil {
		n.taken = make(map[string]bool)
	}
	n.taken[name] = true
	return nil
}

// Free releases name, because its registration failed or its consumer was closed.
func (n *Names) Free(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, name)
}
