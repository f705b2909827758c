package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/migrations"
)

// Register implements dedup.Registrar.
func (s *Store) Register(ctx context.Context, consumer string, window time.Duration) (err error) {
	rec := dedup.Record{Key: dedup.Key{Consumer: consumer, ID: "any"}, Window: window}
	if err := rec.Validate(); err != nil {
		return err
	}
	if err := s.names.Take(consumer); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.names.Free(consumer)
			if s.db.refused(err) {
				err = databaseError{fmt.Errorf("%w: %w", dedup.ErrAccess, err)}
			}
		}
	}()
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.useWindows(ctx, []claims.Window{claims.WindowOf(rec)})
}

// check refuses what would make every message fail, or forget commits.
func (s *Store) check(ctx context.Context) error {
	if err := s.db.check(ctx, s.cfg.DB); err != nil {
		return err
	}
	return s.checkSchema(ctx)
}

var _ dedup.Releaser = (*Store)(nil)

// Release implements dedup.Releaser.
func (s *Store) Release(consumer string) { s.names.Free(consumer) }

func (s *Store) checkSchema(ctx context.Context) error {
	if err := s.locate(ctx, nil); err != nil {
		return err
	}
	var version, worksWith sql.NullInt64
	err := s.db.patiently(ctx, func() error {
		return s.cfg.DB.QueryRowContext(ctx, s.db.statements().SchemaVersion).Scan(&version, &worksWith)
	})
	known := int64(migrations.Latest(string(s.cfg.Dialect)))
	switch {
	case err != nil && s.db.undefined(err):
		return databaseError{fmt.Errorf("%w: table txonce_schema is missing%s; %s", dedup.ErrSchema, s.where(), howToMigrate)}
	case err != nil:
		return databaseError{fmt.Errorf("sqlstore: read the schema's version: %w", err)}
	case version.Int64 < known:
		return databaseError{fmt.Errorf("%w: version %d%s, this program needs %d; %s", dedup.ErrSchema, version.Int64, s.where(), known, howToMigrate)}
	case worksWith.Int64 > known:
		return databaseError{fmt.Errorf("%w: version %d%s works with programs that know version %d or later, and this one knows %d; deploy a newer program, or migrate down first",
			dedup.ErrSchema, version.Int64, s.where(), worksWith.Int64, known)}
	}
	var none int
	err = s.db.patiently(ctx, func() error { return s.cfg.DB.QueryRowContext(ctx, s.db.statements().SchemaTables).Scan(&none) })
	switch {
	case err != nil && s.db.undefined(err):
		return databaseError{fmt.Errorf("%w: %w, though txonce_schema%s says that version %d is there: restore what was dropped", dedup.ErrSchema, err, s.where(), version.Int64)}
	case err != nil:
		return databaseError{fmt.Errorf("sqlstore: read the schema's tables: %w", err)}
	}
	return nil
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

// useWindows records windows before the first claim under them, and again before their leases end, in transactions of
// their own: a registration must not roll back with somebody's.
func (s *Store) useWindows(ctx context.Context, windows []claims.Window) error {
	due := s.leases.Due(windows, time.Now())
	if len(due) == 0 {
		return nil
	}
	leave, err := s.db.enter(ctx)
	if err != nil {
		return databaseError{err}
	}
	defer leave()
	return s.use(ctx, due)
}

// use is useWindows for windows that are due, once it may write.
func (s *Store) use(ctx context.Context, due []claims.Window) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
	defer cancel()
	if err := s.locate(ctx, nil); err != nil {
		return err
	}
	if err := s.db.registered(ctx, s.cfg.DB); err != nil {
		return s.claimError(fmt.Errorf("read the database's settings: %w", err))
	}
	for _, w := range due {
		asked := time.Now()
		var until time.Time
		err := s.db.patiently(ctx, func() (err error) {
			until, err = s.db.useWindow(ctx, s.cfg.DB, w)
			return err
		})
		if err != nil {
			return s.claimError(fmt.Errorf("register consumer %q: %w", w.Consumer, err))
		}
		s.leases.Registered(w, until, asked)
	}
	return nil
}

// useElsewhere is use on another connection than that of a caller who may hold all of the pool's.
func (s *Store) useElsewhere(ctx context.Context, due []claims.Window) error {
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	return s.use(ctx, due)
}

// useWindow is for databases whose statement returns what it wrote.
func useWindow(ctx context.Context, db queryer, statement string, w claims.Window) (time.Time, error) {
	var until instant
	err := db.QueryRowContext(ctx, statement, w.Consumer, w.Seconds, dedup.UseFor.Seconds()).Scan(&until)
	return until.Time, err
}
