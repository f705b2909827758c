package pgxstore

import (
	"context"
	"errors"

	"github.com/txonce/txonce/internal/claims"
)

// checkSettings rejects a database that may lose commits, or that accepts no writes. A session that was changed proves
// nothing: another one is checked.
func (r *registrar) checkSettings(ctx context.Context) (err error) {
	for range claims.Attempts {
		if err = r.checkSession(ctx); err == nil || !errors.Is(err, claims.ErrAgain) && !r.pooled.Load() {
			break
		}
	}
	if errors.Is(err, claims.ErrAgain) {
		err = database.Errorf("pgxstore: %w", err)
	}
	return err
}

// checkSession checks the settings of one session of the pool, in a transaction, so that a pooler answers with one
// session.
func (r *registrar) checkSession(ctx context.Context) (err error) {
	conn, err := r.cfg.Pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: connect: %w", err)
	}
	defer conn.Release()
	c := r.newClaim(&claims.Plan{}, conn.Conn())
	defer func() {
		if err != nil {
			r.discard(ctx, conn.Conn())
		} else {
			rollback(ctx, c.tx)
		}
	}()
	if err := c.open(ctx); err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	if err := r.compare(ctx, c.conn, &c.session); err != nil {
		return err
	}
	var settings claims.PostgresSettings
	if err := c.tx.QueryRow(ctx, r.plain.Settings).Scan(settings.Dest()...); err != nil {
		return database.Errorf("pgxstore: read the database's settings: %w", err)
	}
	if err := settings.Check(database, r.cfg.AllowAsyncCommit); err != nil {
		return err
	}
	return claims.CheckFormats(database, func(sql string, dest ...any) error { return c.tx.QueryRow(ctx, sql).Scan(dest...) })
}
