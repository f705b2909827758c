package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// RegisterSources implements driver.Registrar. It first checks what Register checks. If that fails, it records nothing.
func (s *Store) RegisterSources(ctx context.Context, consumer string, sources []string) error {
	if err := (dedup.Key{Consumer: consumer, ID: "any"}).Validate(); err != nil {
		return err
	}
	return s.refused(s.registerSources(ctx, consumer, sources))
}

func (s *Store) registerSources(ctx context.Context, consumer string, sources []string) error {
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	t, err := s.begin(ctx, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer t.close() // rolls back an uncommitted transaction
	q := s.db.Tables.Statements()
	if _, err := t.Tx.ExecContext(ctx, q.LockSources, consumer); err != nil {
		return s.claimError(err)
	}
	recorded, err := engine.Column[string](engine.Query(ctx, t.Tx, q.Sources, consumer))
	if err != nil {
		return s.claimError(err)
	}
	added, err := claims.NewSources(consumer, s.qualifier(), recorded, sources)
	if err != nil {
		return err
	}
	for _, source := range added {
		if _, err := t.Tx.ExecContext(ctx, q.AddSource, consumer, source); err != nil {
			return s.claimError(err)
		}
	}
	return t.commit()
}

// qualifier returns the schema with a dot, for table names in statements that an error suggests to run.
func (s *Store) qualifier() string {
	switch {
	case s.cfg.Schema == "" || s.cfg.Dialect == SQLite:
		return ""
	case s.cfg.Dialect == MySQL:
		return "`" + s.cfg.Schema + "`."
	}
	return `"` + s.cfg.Schema + `".`
}
