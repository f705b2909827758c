package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

func (d *DB) Check(ctx context.Context) error {
	if err := d.checkPooler(ctx, d.cfg.DB); err != nil {
		return err
	}
	var sync, fsync, readOnly, standbys string
	var recovering bool
	var encoding string
	if err := d.cfg.DB.QueryRowContext(ctx, d.plain.Encoding).Scan(&encoding); err != nil {
		return engine.Database.Errorf("sqlstore: read the database's encoding: %w", err)
	}
	if err := d.cfg.DB.QueryRowContext(ctx, d.plain.Settings).Scan(&sync, &fsync, &recovering, &readOnly, &standbys); err != nil {
		return engine.Database.Errorf("sqlstore: read the database's settings: %w", err)
	}
	switch {
	case recovering:
		return engine.Database.Errorf("sqlstore: the database is a standby: connect to the primary (target_session_attrs=read-write)")
	case readOnly == "on":
		return engine.Database.Errorf("sqlstore: transactions are read-only here: set default_transaction_read_only to off")
	case encoding != "UTF8":
		return fmt.Errorf("sqlstore: the database's encoding is %s, which does not have every text that a message may hold: use one with ENCODING 'UTF8'", encoding)
	case d.cfg.AllowAsyncCommit:
	case fsync == "off":
		return fmt.Errorf("%w: fsync is off; turn it on, or set Config.AllowAsyncCommit", dedup.ErrNotDurable)
	case sync == "off", sync == "local" && standbys != "":
		return errAsync(sync)
	}
	return nil
}

func errAsync(sync string) error {
	return fmt.Errorf("%w: synchronous_commit is %s; set it to on for this role or database, or set Config.AllowAsyncCommit", dedup.ErrNotDurable, sync)
}

func (d *DB) Refresh(context.Context) error { return nil }

// sweepPages is how many pages of the table one Purge reads: about 3,000 rows, which keeps transactions short.
const sweepPages = 32

func (d *DB) Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep) (swept dedup.SweepResult, err error) {
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
	var latest engine.Instant
	var lag float64
	if err := tx.QueryRowContext(ctx, d.SQL.SweepDelete, page, page+sweepPages, by.Limit, d.Time(swept.Clock)).Scan(&swept.Keys, &latest, &lag); err != nil {
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
	if _, err := tx.ExecContext(ctx, d.shared.Operator.ForgetAudit, by.Limit); err != nil {
		return swept, err
	}
	_, err = tx.ExecContext(ctx, d.SQL.SweepDone, page, d.Time(latest.Time))
	return swept, err
}
