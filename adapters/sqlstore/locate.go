package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// location is where the tables are.
type location struct {
	finding sync.Mutex
	found   atomic.Bool
}

// locate has all statements name the schema of their tables, from the first use of s on: whatever search_path or database a
// handler leaves behind, or an application sets in a transaction of its own, none of them finds tables of these names
// elsewhere. Everything that sends a statement calls it first. tx is nil, or a transaction of the caller's, which is asked where
// the pool has no other connection.
func (s *Store) locate(ctx context.Context, tx *sql.Tx) error {
	if s.location.found.Load() {
		return nil
	}
	s.location.finding.Lock()
	defer s.location.finding.Unlock()
	if s.location.found.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
	defer cancel()
	var q engine.Queryer = s.cfg.DB
	if tx != nil && s.cfg.DB.Stats().MaxOpenConnections == 1 {
		q = tx
	}
	schema, err := s.db.Tables.Locate(ctx, q)
	switch {
	case err != nil:
		return s.claimError(fmt.Errorf("find the schema of txonce's tables: %w", err))
	case schema == "":
		return s.schema().Missing()
	}
	s.db.Tables.Name(schema)
	s.location.found.Store(true)
	return nil
}
