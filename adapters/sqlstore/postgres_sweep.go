package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

func (d *postgres) check(ctx context.Context, db *sql.DB) error {
	if err := d.checkPooler(ctx, db); err != nil {
		return err
	}
	var sync, fsync, readOnly, standbys string
	var recovering bool
	var encoding string
	if err := db.QueryRowContext(ctx, d.plain.Encoding).Scan(&encoding); err != nil {
		return claims.DatabaseErrorf("sqlstore: read the database's encoding: %w", err)
	}
	if err := db.QueryRowContext(ctx, d.plain.Settings).Scan(&sync, &fsync, &recovering, &readOnly, &standbys); err != nil {
		return claims.DatabaseErrorf("sqlstore: read the database's settings: %w", err)
	}
	switch {
	case recovering:
		return claims.DatabaseErrorf("sqlstore: the database is a standby: connect to the primary (target_session_attrs=read-write)")
	case readOnly == "on":
		return claims.DatabaseErrorf("sqlstore: transactions are read-only here: set default_transaction_read_only to off")
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

func (d *postgres) registered(context.Context, *sql.DB) error { return nil }

// sweepPages is how many pages of the table one Purge reads: about 3,000 rows, so that no transaction is long.
const sweepPages = 32

func (d *postgres) sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep) (swept dedup.Swept, err error) {
	if _, err := tx.ExecContext(ctx, d.sql.SweepSettings, "10s"); err != nil {
		return swept, err
	}
	var clock instant
	if err := tx.QueryRowContext(ctx, d.sql.SweepClock).Scan(&clock); err != nil {
		return swept, err
	}
	swept.Clock = clock.Time
	if err := by.ClockAhead(swept.Clock); err != nil {
		return swept, err
	}
	var page, pages int64
	err = tx.QueryRowContext(ctx, d.sql.SweepLease, by.Owner, by.Lease.Seconds()).Scan(&page, &pages)
	if errors.Is(err, sql.ErrNoRows) {
		return swept, errBusy
	}
	if err != nil {
		return swept, err
	}
	if page >= pages {
		page = 0 // the table was truncated or rewritten since
	}
	var latest instant
	var lag float64
	if err := tx.QueryRowContext(ctx, d.sql.SweepDelete, page, page+sweepPages, by.Limit, d.time(swept.Clock)).Scan(&swept.Keys, &latest, &lag); err != nil {
		return swept, err
	}
	swept.Lag = time.Duration(lag * float64(time.Second))
	if swept.Keys < by.Limit { // else there may be more in these pages
		page += sweepPages
	}
	if swept.Done = page >= pages; swept.Done {
		page = 0
		if _, err := tx.ExecContext(ctx, d.sql.DropSettled, by.Limit); err != nil {
			return swept, err
		}
	}
	_, err = tx.ExecContext(ctx, d.sql.SweepDone, page, d.time(latest.Time))
	return swept, err
}
