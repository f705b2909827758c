package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// location records whether the schema of the tables is known.
type location struct {
	finding sync.Mutex
	found   atomic.Bool
}

// locate finds the schema of the tables at the first use of s, and puts it into all statements. Later changes of
// search_path or of the session's database, by a handler or by the application, then cannot redirect statements to
// tables of the same names in another schema. Every method that sends statements calls locate first. tx is nil or the
// caller's transaction. locate uses tx if the pool may have no other connection.
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
