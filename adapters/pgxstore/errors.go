package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox"
)

// databaseError is what failed without a message having a part in it.
type databaseError struct{ error }

func (e databaseError) Unwrap() error { return e.error }

// Is makes a schema that does not fit an outbox.ErrSchema too, for the relay, which knows nothing of dedup.
func (e databaseError) Is(target error) bool {
	return target == outbox.ErrSchema && errors.Is(e.error, dedup.ErrSchema)
}

// Retryable implements dedup.Store.
func (s *Store) Retryable(err error) bool {
	if errors.As(err, new(databaseError)) {
		return true
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && dialect.RetryablePostgres(pg.Code)
}

// claimError classifies an error of a claim: nothing of the message's own has run yet.
func (s *Store) claimError(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, dedup.ErrKeyCollision), errors.As(err, new(databaseError)):
		return err
	case errors.As(err, &pg) && pg.Code == "55P03": // the session's own lock_timeout
		return fmt.Errorf("%w: %w", dedup.ErrInFlight, err)
	case isUndefined(err):
		return databaseError{fmt.Errorf("%w: %w; %s", dedup.ErrSchema, err, howToMigrate)}
	}
	return databaseError{fmt.Errorf("pgxstore: claim: %w", err)}
}

// pingWait bounds the question whether a database that lets a claim wait answers at all.
const pingWait = time.Second

// waited says why a claim got no answer in time: another transaction holds its key, or the database is away.
func (s *Store) waited(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	ping := s.cfg.Pool.Ping(ctx)
	if stat := s.cfg.Pool.Stat(); ping != nil && stat.AcquiredConns() < stat.MaxConns() {
		return databaseError{fmt.Errorf("pgxstore: claim: %w (and the database does not answer: %w)", err, ping)}
	}
	return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight, s.cfg.InFlightWait)
}

// sweepError is claimError for reads of the one row of txonce_sweep.
func (s *Store) sweepError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return databaseError{fmt.Errorf("%w: the one row of table txonce_sweep is missing, and with it how far keys were forgotten: INSERT INTO txonce_sweep (forgotten_until) VALUES (now())", dedup.ErrSchema)}
	}
	return s.claimError(err)
}

// stepError names the step of ours that failed in somebody's transaction. What the handler did before may be to blame, so
// the error's own code decides; a missing table is the database's fault as ever.
func (s *Store) stepError(step string, err error) error {
	err = slotError(err)
	switch {
	case err == nil:
		return nil
	case isUndefined(err):
		return s.claimError(err)
	}
	return fmt.Errorf("pgxstore: %s: %w", step, err)
}

const howToMigrate = "apply txonce's migrations: pgxstore.Migrate(ctx, pool, schema), or the files of package migrations"

// blame adds to a handler's error what the handler cannot know: that an earlier statement broke the transaction, or that
// the connection was lost.
func (g *guard) blame(err error) error {
	g.mu.Lock()
	first, ended := g.first, g.ended
	g.mu.Unlock()
	switch {
	case ended != nil && !errors.Is(err, dedup.ErrTxEnded):
		return fmt.Errorf("%w (the handler returned: %w)", ended, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err // a time limit of the handler's own, or the end of ctx, which closes the connection too
	case g.conn.IsClosed():
		return databaseError{fmt.Errorf("pgxstore: connection lost: %w", err)}
	case first != nil && !errors.Is(err, first):
		return g.aborted(err)
	}
	return err
}

// isHandlers reports that COMMIT was refused for what the handler wrote: a deferred constraint, or a trigger's RAISE. Any
// other error of COMMIT leaves open what happened.
func isHandlers(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Severity == "ERROR" && (strings.HasPrefix(pg.Code, "23") || pg.Code == "P0001")
}

// isUndefined reports that a table or column is missing.
func isUndefined(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703" || pg.Code == "3F000")
}
