package pgxrows

import (
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// SentBatches remembers how many statements the batches of a handler had when they were sent. What is queued later, by
// a callback for example, is never sent: pgx ignores it. The zero value is ready for use. It is safe for concurrent
// use.
type SentBatches struct {
	mu  sync.Mutex
	len map[*pgx.Batch]int
}

// Add records that b is sent now.
func (s *SentBatches) Add(b *pgx.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.len == nil {
		s.len = map[*pgx.Batch]int{}
	}
	s.len[b] = len(b.QueuedQueries)
}

// Check returns an error that names a statement that was queued too late. If there is none, it forgets the batches.
func (s *SentBatches) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, n := range s.len {
		if late := len(b.QueuedQueries) - n; late > 0 {
			return fmt.Errorf("pgxstore: %d statements were queued on a pgx.Batch after it was sent, by a callback for example, "+
				"and would never run; the first is %.80q: send it with another batch, or express it in SQL",
				late, b.QueuedQueries[n].SQL)
		}
	}
	clear(s.len)
	return nil
}
