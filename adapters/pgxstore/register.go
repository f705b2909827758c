package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/migrations"
)

// Migrate brings the tables in schema (empty: the first of search_path) up to date. Several nodes may call it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return migrations.Apply(ctx, db, "postgres", schema)
}

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
			err = refusedAccess(err)
		}
	}()
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.use(ctx, claims.WindowOf(rec))
}

// check refuses what would make every message fail, or forget commits.
func (s *Store) check(ctx context.Context) error {
	if err := s.checkPooler(ctx); err != nil {
		return err
	}
	if err := s.checkSettings(ctx); err != nil {
		return err
	}
	return s.checkSchema(ctx)
}

var _ dedup.Releaser = (*Store)(nil)

// Release implements dedup.Releaser.
func (s *Store) Release(consumer string) { s.names.Free(consumer) }

// checkSettings refuses a database that forgets commits, or takes none.
func (s *Store) checkSettings(ctx context.Context) error {
	var sync, fsync, readOnly, standbys string
	var recovering bool
	if err := s.cfg.Pool.QueryRow(ctx, s.plain.Settings).Scan(&sync, &fsync, &recovering, &readOnly, &standbys); err != nil {
		return databaseError{fmt.Errorf("pgxstore: read the database's settings: %w", err)}
	}
	encoding, err := s.learn(ctx)
	switch {
	case err != nil:
		return err
	case encoding != "UTF8":
		return fmt.Errorf("pgxstore: the database's encoding is %s, which does not hold every text that a message may have: create it with ENCODING 'UTF8'", encoding)
	case recovering:
		return databaseError{fmt.Errorf("pgxstore: the database is a standby: connect to the primary (target_session_attrs=read-write)")}
	case readOnly == "on":
		return databaseError{fmt.Errorf("pgxstore: transactions are read-only here: set default_transaction_read_only to off")}
	case s.cfg.AllowAsyncCommit:
	case fsync == "off":
		return fmt.Errorf("%w: fsync is off; turn it on, or set Config.AllowAsyncCommit", dedup.ErrNotDurable)
	case sync == "off", sync == "local" && standbys != "":
		return fmt.Errorf("%w: synchronous_commit is %s; set it to on for this role or database, or set Config.AllowAsyncCommit", dedup.ErrNotDurable, sync)
	}
	return nil
}

func (s *Store) checkSchema(ctx context.Context) error {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return err
	}
	var version, worksWith *int
	err := s.cfg.Pool.QueryRow(ctx, s.sql.SchemaVersion).Scan(&version, &worksWith)
	known := migrations.Latest("postgres")
	switch {
	case isUndefined(err):
		return databaseError{fmt.Errorf("%w: table txonce_schema is missing%s; %s", dedup.ErrSchema, s.where(), howToMigrate)}
	case err != nil:
		return databaseError{fmt.Errorf("pgxstore: read the schema's version: %w", err)}
	case version == nil || *version < known:
		return databaseError{fmt.Errorf("%w: version %d%s, this program needs %d; %s", dedup.ErrSchema, deref(version), s.where(), known, howToMigrate)}
	case *worksWith > known:
		return databaseError{fmt.Errorf("%w: version %d%s works with programs that know version %d or later, and this one knows %d; deploy a newer program, or migrate down first",
			dedup.ErrSchema, *version, s.where(), *worksWith, known)}
	}
	switch _, err := s.cfg.Pool.Exec(ctx, s.sql.SchemaTables); {
	case isUndefined(err):
		return databaseError{fmt.Errorf("%w: %w, though txonce_schema%s says that version %d is there: restore what was dropped", dedup.ErrSchema, err, s.where(), *version)}
	case err != nil:
		return databaseError{fmt.Errorf("pgxstore: read the schema's tables: %w", err)}
	}
	return nil
}

func (s *Store) where() string {
	if s.cfg.Schema == "" {
		return " in search_path"
	}
	return fmt.Sprintf(" in schema %q", s.cfg.Schema)
}

// useWindows records the windows of plan before the first claim under them, and again before their leases end.
// It uses a connection of its own, because a registration must not roll back with somebody's transaction.
func (s *Store) useWindows(ctx context.Context, plan *claims.Plan) error {
	for _, w := range s.leases.Due(plan.Windows(), time.Now()) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
		err := s.use(ctx, w)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) use(ctx context.Context, w claims.Window) error {
	asked := time.Now()
	var until time.Time
	err := s.cfg.Pool.QueryRow(ctx, s.sql.UseWindow, w.Consumer, w.Seconds, dedup.UseFor.Seconds()).Scan(&until)
	if isUndefined(err) {
		return s.claimError(err)
	}
	if err != nil {
		return databaseError{fmt.Errorf("pgxstore: register consumer %q: %w", w.Consumer, err)}
	}
	if s.session.Load() == nil { // a program may claim without Register
		if _, err := s.learn(ctx); err != nil {
			return err
		}
	}
	s.leases.Registered(w, until, asked)
	return nil
}

// Lookup implements dedup.KeyReader.
func (s *Store) Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error) {
	if err := key.Validate(); err != nil {
		return dedup.Claim{}, false, err
	}
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return dedup.Claim{}, false, err
	}
	var row storedRow
	rows, _ := s.cfg.Pool.Query(ctx, s.sql.Lookup, pgUUID(key.Hash()))
	_, err = pgx.ForEachRow(rows, row.dest(), func() error {
		found = true
		if other, readable := row.naturalKey(); readable && other != key {
			return claims.Collision(key, other)
		}
		c = row.claim()
		c.Verdict = dedup.Duplicate
		return nil
	})
	return c, found, s.claimError(err)
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
