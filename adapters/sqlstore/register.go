package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/migrations"
)

// Register implements driver.Registrar.
func (s *Store) Register(ctx context.Context, consumer string, window time.Duration) error {
	err := s.names.Register(ctx, consumer, window, func(w claims.Window) error {
		if err := s.checkStart(ctx); err != nil {
			return err
		}
		return s.useWindows(ctx, []claims.Window{w})
	})
	return s.refused(err)
}

// refused adds ErrAccess to err if the database refused access.
func (s *Store) refused(err error) error {
	if err != nil && s.fault(err).Refused {
		return engine.Database.Errorf("%w: %w", dedup.ErrAccess, err)
	}
	return err
}

// check fails if the database's state or settings would make every message fail, or lose commits.
func (s *Store) check(ctx context.Context) error {
	if err := s.db.Tables.Check(ctx); err != nil {
		return err
	}
	return s.checkSchema(ctx)
}

// checkStart does what Check does. It tries a claim only until one has worked, because a consumer's start comes here
// twice.
func (s *Store) checkStart(ctx context.Context) error {
	if err := s.check(ctx); err != nil || s.tried.Load() {
		return err
	}
	err := s.try(ctx)
	s.tried.Store(err == nil)
	return err
}

// Release implements driver.Registrar.
func (s *Store) Release(consumer string) { s.names.Free(consumer) }

// NameFree implements driver.Registrar.
func (s *Store) NameFree(consumer string) error { return s.names.NameFree(consumer) }

func (s *Store) checkSchema(ctx context.Context) error {
	if err := s.locate(ctx, nil); err != nil {
		return err
	}
	var version, worksWith int
	err := s.db.Transactions.RetryBusy(ctx, func() error {
		return s.cfg.DB.QueryRowContext(ctx, s.db.Tables.Statements().SchemaVersion).Scan(&version, &worksWith)
	})
	switch {
	case err != nil && s.fault(err).Undefined:
		return s.schema().Missing()
	case err != nil:
		return engine.Database.Errorf("sqlstore: read the schema's version: %w", err)
	}
	if err := s.schema().Check(version, worksWith); err != nil {
		return err
	}
	var none int
	err = s.db.Transactions.RetryBusy(ctx, func() error { return s.cfg.DB.QueryRowContext(ctx, s.db.Tables.Statements().SchemaTables).Scan(&none) })
	switch {
	case err != nil && s.fault(err).Undefined:
		return s.schema().Dropped(err, version)
	case err != nil:
		return engine.Database.Errorf("sqlstore: read the schema's tables: %w", err)
	}
	return nil
}

func (s *Store) schema() claims.Schema {
	return claims.Schema{
		Owner: engine.Database, Where: s.where(), HowTo: engine.HowToMigrate,
		Known: migrations.Latest(string(s.cfg.Dialect)),
	}
}

func (s *Store) where() string {
	switch {
	case s.cfg.Dialect == SQLite:
		return ""
	case s.cfg.Dialect == MySQL && s.cfg.Schema == "":
		return " in the DSN's database"
	case s.cfg.Dialect == MySQL:
		return fmt.Sprintf(" in database %q", s.cfg.Schema)
	case s.cfg.Schema == "":
		return " in search_path"
	}
	return fmt.Sprintf(" in schema %q", s.cfg.Schema)
}

// useWindows registers windows before the first claim under them, and again before their registrations expire. It uses
// separate transactions, because a registration must not roll back with the caller's transaction.
func (s *Store) useWindows(ctx context.Context, windows []claims.Window) error {
	due := s.leases.Due(windows, time.Now())
	if len(due) == 0 {
		return nil
	}
	leave, err := s.db.Transactions.Enter(ctx)
	if err != nil {
		return engine.Database.Wrap(err)
	}
	defer leave()
	return s.use(ctx, due)
}

// use registers the windows in due. The caller has called Transactions.Enter, or holds a transaction.
func (s *Store) use(ctx context.Context, due []claims.Window) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
	defer cancel()
	if err := s.locate(ctx, nil); err != nil {
		return err
	}
	if err := s.db.Tables.Refresh(ctx); err != nil {
		return s.claimError(fmt.Errorf("read the database's settings: %w", err))
	}
	return s.leases.Use(due, func(w claims.Window) (until time.Time, err error) {
		err = s.db.Transactions.RetryBusy(ctx, func() (err error) {
			until, err = s.db.Claims.UseWindow(ctx, s.cfg.DB, w)
			return err
		})
		if err != nil {
			s.closeReadOnly(ctx, err)
			return until, s.claimError(fmt.Errorf("register consumer %q: %w", w.Consumer, err))
		}
		return until, nil
	})
}

// closeReadOnly closes one idle connection of the pool if err says that a session accepts no writes, so that after some
// attempts a connection to the new primary is used.
func (s *Store) closeReadOnly(ctx context.Context, err error) {
	if !s.fault(err).ReadOnly {
		return
	}
	if conn, err := s.cfg.DB.Conn(ctx); err == nil {
		engine.Discard(conn)
		conn.Close()
	}
}

// useElsewhere registers windows on another connection than the caller's. The wait is limited, because callers may hold
// all of the pool's connections.
func (s *Store) useElsewhere(ctx context.Context, due []claims.Window) error {
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	return s.use(ctx, due)
}
