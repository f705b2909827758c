package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/migrations"
)

// Migrate applies the migrations to schema (empty: the first schema of search_path). Several nodes may call it at once.
// It fails at once when the database does not answer.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return migrations.Apply(ctx, db, "postgres", schema)
}

// Register implements driver.Registrar.
func (s *Store) Register(ctx context.Context, consumer string, window time.Duration) error {
	err := s.names.Register(ctx, consumer, window, func(w claims.Window) error {
		if err := s.check(ctx); err != nil {
			return err
		}
		return s.windowLeases.Use([]claims.Window{w}, func(w claims.Window) (time.Time, error) { return s.use(ctx, w) })
	})
	return refusedAccess(err)
}

// check rejects a configuration that would make every message fail, or that could lose commits.
func (s *Store) check(ctx context.Context) error {
	if err := s.checkPooler(ctx); err != nil {
		return err
	}
	if err := s.checkSettings(ctx); err != nil {
		return err
	}
	return s.checkSchema(ctx)
}

// Release implements driver.Registrar.
func (s *Store) Release(consumer string) { s.names.Free(consumer) }

// NameFree implements driver.Registrar.
func (s *Store) NameFree(consumer string) error { return s.names.NameFree(consumer) }

// checkSettings rejects a database that may lose commits, or that accepts no writes. A session that was changed proves nothing: another one
// is checked.
func (s *Store) checkSettings(ctx context.Context) (err error) {
	for range claims.Attempts {
		if err = s.checkSession(ctx); err == nil || !errors.Is(err, claims.ErrAgain) && !s.pooled.Load() {
			break
		}
	}
	if errors.Is(err, claims.ErrAgain) {
		err = database.Errorf("pgxstore: %w", err)
	}
	return err
}

// checkSession checks the settings of one session of the pool, in a transaction, so that a pooler answers with one session.
func (s *Store) checkSession(ctx context.Context) (err error) {
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: connect: %w", err)
	}
	defer conn.Release()
	c := s.newClaim(&claims.Plan{})
	c.conn = conn.Conn()
	defer func() {
		if err != nil {
			s.discard(ctx, conn.Conn())
		} else {
			rollback(ctx, c.tx)
		}
	}()
	if err := c.open(ctx); err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	if err := s.compare(ctx, c.conn, &c.session); err != nil {
		return err
	}
	var settings claims.PostgresSettings
	if err := c.tx.QueryRow(ctx, s.plain.Settings).Scan(settings.Dest()...); err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	if err := settings.Check(database, s.cfg.AllowAsyncCommit); err != nil {
		return err
	}
	return claims.CheckFormats(database, func(sql string, dest ...any) error { return c.tx.QueryRow(ctx, sql).Scan(dest...) })
}

// useWindows registers the windows of plan before the first claim uses them, and again before their registrations expire. It
// uses a separate connection, because a registration must not roll back with another transaction.
func (s *Store) useWindows(ctx context.Context, plan *claims.Plan) error {
	return s.windowLeases.Use(s.windowLeases.Due(plan.Windows(), time.Now()), func(w claims.Window) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
		defer cancel()
		return s.use(ctx, w)
	})
}

func (s *Store) use(ctx context.Context, w claims.Window) (until time.Time, err error) {
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err == nil {
		err = conn.QueryRow(ctx, s.sql.UseWindow, w.Consumer, w.Seconds, driver.UseFor.Seconds()).Scan(&until)
		s.release(ctx, conn, err)
	}
	switch {
	case isUndefined(err):
		return until, claimError(err)
	case err != nil:
		return until, database.Errorf("pgxstore: register consumer %q: %w", w.Consumer, err)
	}
	return until, nil
}

// Lookup implements driver.KeyReader.
func (s *Store) Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error) {
	if err := key.Validate(); err != nil {
		return dedup.Claim{}, false, err
	}
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return dedup.Claim{}, false, err
	}
	var row storedRow
	rows, _ := s.cfg.Pool.Query(ctx, s.sql.Lookup, pgUUID(key.Hash()))
	_, err = pgx.ForEachRow(rows, row.dest(), func() (err error) {
		found = true
		stored := row.stored()
		c, err = stored.Claim(key)
		return err
	})
	return c, found, claimError(err)
}
