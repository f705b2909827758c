package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

func (d *DB) Check(ctx context.Context) error {
	if err := d.checkPooler(ctx, d.cfg.DB); err != nil {
		return err
	}
	var settings claims.PostgresSettings
	if err := d.cfg.DB.QueryRowContext(ctx, d.plain.Settings).Scan(settings.Dest()...); err != nil {
		return engine.Database.Errorf("sqlstore: read the database's settings: %w", err)
	}
	if err := settings.Check(engine.Database, d.cfg.AllowAsyncCommit); err != nil {
		return err
	}
	return d.CheckSession(ctx)
}

// CheckSession implements engine.Tables.
func (d *DB) CheckSession(ctx context.Context) error {
	return claims.CheckFormats(engine.Database, d.scan(ctx))
}

// CheckNumbers implements engine.Tables.
func (d *DB) CheckNumbers(ctx context.Context) error {
	return claims.CheckPostgresNumbers(engine.Database, d.scan(ctx), d.box.relay.Numbers)
}

func (d *DB) scan(ctx context.Context) func(query string, dest ...any) error {
	return func(query string, dest ...any) error { return d.cfg.DB.QueryRowContext(ctx, query).Scan(dest...) }
}

func (d *DB) Refresh(context.Context) error { return nil }

// sweepPages is how many pages of the table one Purge reads: about 3,000 rows, which keeps transactions short.
const sweepPages = 32

func (d *DB) Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep, a *engine.Archive,
) (swept dedup.SweepResult, err error) {
	if _, err := tx.ExecContext(ctx, d.SQL.SweepSettings, "10s"); err != nil {
		return swept, err
	}
	var clock engine.Instant
	if err := tx.QueryRowContext(ctx, d.SQL.SweepClock).Scan(&clock); err != nil {
		return swept, err
	}
	swept.Clock = clock.Time
	if err := by.ClockAhead(swept.Clock); err != nil {
		return swept, err
	}
	var page, pages int64
	err = tx.QueryRowContext(ctx, d.SQL.SweepLease, by.Owner, by.Lease.Seconds()).Scan(&page, &pages)
	if errors.Is(err, sql.ErrNoRows) {
		return swept, engine.ErrBusy
	}
	if err != nil {
		return swept, err
	}
	if page >= pages {
		page = 0 // the table has been truncated or rewritten since the last sweep
	}
	part := []any{page, page + sweepPages, by.Limit, d.Time(swept.Clock)}
	if a != nil && a.Look {
		return swept, a.Read(engine.Query(ctx, tx, d.SQL.SweepExpired, part...))
	}
	sql := d.SQL.SweepDelete
	if a != nil {
		sql, part = d.SQL.SweepArchived, []any{d.Keys(a.Expired().Keys), d.Time(swept.Clock)}
	}
	var latest engine.Instant
	var lag float64
	if err := tx.QueryRowContext(ctx, sql, part...).Scan(&swept.Keys, &latest, &lag); err != nil {
		return swept, err
	}
	swept.Lag = time.Duration(lag * float64(time.Second))
	if swept.Keys < by.Limit { // otherwise these pages may have more expired rows
		page += sweepPages
	}
	if swept.Done = page >= pages; swept.Done {
		page = 0
		if _, err := tx.ExecContext(ctx, d.SQL.DropSettled, by.Limit); err != nil {
			return swept, err
		}
		if _, err := tx.ExecContext(ctx, d.shared.Operator.PassEnded); err != nil {
			return swept, err
		}
	}
	_, err = tx.ExecContext(ctx, d.SQL.SweepDone, page, d.Time(latest.Time), d.Time(swept.Clock))
	return swept, err
}
