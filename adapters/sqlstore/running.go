package sqlstore

import (
	"database/sql"
	"sync"
)

// running has the transactions that handlers are using.
type running struct {
	mu       sync.Mutex
	sessions map[*sql.Tx]*transaction
}

func (r *running) add(t *transaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = make(map[*sql.Tx]*transaction)
	}
	r.sessions[t.Tx] = t
}

func (r *running) remove(tx *sql.Tx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, tx)
}

func (r *running) of(tx *sql.Tx) *transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[tx]
}
