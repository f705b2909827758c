package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// RegisterSources implements driver.Registrar. Like Register, it checks the database first, so a refused start records
// nothing.
func (r *registrar) RegisterSources(ctx context.Context, consumer string, sources []string) error {
	if err := (dedup.Key{Consumer: consumer, ID: "any"}).Validate(); err != nil {
		return err
	}
	if err := r.check(ctx); err != nil {
		return refusedAccess(err)
	}
	var refused error
	conn, err := r.cfg.Pool.Acquire(ctx)
	if err != nil {
		return refusedAccess(database.Errorf("pgxstore: connect: %w", err))
	}
	defer func() { r.release(ctx, conn, err) }()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, r.sql.LockSources, consumer); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, r.sql.Sources, consumer)
		recorded, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		added, err := claims.NewSources(consumer, r.qualifier(), recorded, sources)
		if err != nil {
			refused = err
			return err
		}
		for _, source := range added {
			if _, err := tx.Exec(ctx, r.sql.AddSource, consumer, source); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case refused != nil:
		return refused
	case isUndefined(err):
		return claimError(err)
	}
	return refusedAccess(database.Errorf("pgxstore: register the sources of consumer %q: %w", consumer, err))
}
