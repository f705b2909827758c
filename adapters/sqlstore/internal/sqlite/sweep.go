package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Check reads the settings of one connection. The other connections have the same settings if they are set in the data
// source name.
func (d *DB) Check(ctx context.Context) error {
	var version, journal string
	var hasClock bool
	var synchronous int
	for _, read := range []struct {
		query string
		dest  []any
	}{
		{d.sql.Version, []any{&version, &hasClock}},
		{d.sql.Synchronous, []any{&synchronous}},
		{d.sql.JournalMode, []any{&journal}},
	} {
		if err := d.RetryBusy(ctx, func() error { return d.cfg.DB.QueryRowContext(ctx, read.query).Scan(read.dest...) }); err != nil {
			return engine.Database.Errorf("sqlstore: read the database's settings: %w", err)
		}
	}
	_, err := d.cfg.DB.ExecContext(ctx, d.sql.Probe)
	switch {
	case !undefined(err):
		return fmt.Errorf("sqlstore: the errors of driver %T carry no result code, so that a busy database looks like a bad message: "+
			"use modernc.org/sqlite (%q came as %T)", d.cfg.DB.Driver(), err, err)
	case !hasClock:
		return fmt.Errorf("sqlstore: SQLite %s is too old: 3.42 or later is needed", version)
	case strings.EqualFold(journal, "off"):
		return fmt.Errorf("%w: without a journal (journal_mode off) SQLite cannot roll back; set journal_mode to wal",
			dedup.ErrNotDurable)
	case d.cfg.AllowAsyncCommit:
	case strings.EqualFold(journal, "memory"):
		return fmt.Errorf("%w: journal_mode is memory, or the database is; use a file and journal_mode wal, or set Config.AllowAsyncCommit", dedup.ErrNotDurable)
	case synchronous < 2 || synchronous < 3 && strings.EqualFold(journal, "delete"):
		// full does not sync the directory after the journal's deletion
		return fmt.Errorf("%w: synchronous is %s and journal_mode is %s: a commit may be forgotten at a loss of power; use journal_mode wal with "+
			"synchronous full (_pragma=journal_mode(wal)&_pragma=synchronous(full) in the data source name) or synchronous extra, "+
			"or set Config.AllowAsyncCommit", dedup.ErrNotDurable, levels[max(synchronous, 0)], journal)
	}
	return d.RetryBusy(ctx, func() error { return checkAttached(ctx, d.cfg.DB) })
}

// One Purge reads at most sweepScan rows, which takes about 10 ms, and deletes at most sweepMost, because all claims
// wait meanwhile.
const (
	sweepScan = 10_000
	sweepMost = 1000
)

func (d *DB) Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep, a *engine.Archive,
) (swept dedup.SweepResult, err error) {
	var next []byte
	var clock, leased engine.Instant
	if err := tx.QueryRowContext(ctx, d.sql.SweepClock).Scan(&clock); err != nil {
		return swept, err
	}
	swept.Clock = clock.Time
	if err := by.ClockAhead(swept.Clock); err != nil {
		return swept, err
	}
	err = tx.QueryRowContext(ctx, d.sql.SweepLease, by.Owner, by.Lease.Seconds()).Scan(&next, &leased)
	if errors.Is(err, sql.ErrNoRows) {
		return swept, engine.ErrBusy
	}
	if err != nil {
		return swept, err
	}
	if next == nil {
		next = []byte{} // an empty blob, because comparisons with NULL are never true
	}
	limit := min(by.Limit, sweepMost)
	var expired engine.Expired
	if a != nil && !a.Look {
		expired = a.Expired()
	} else if expired, err = engine.ReadExpired(engine.Query(ctx, tx, d.sql.SweepExpired, next, sweepScan, limit,
		clock.UnixMicro())); err != nil {
		return swept, err
	}
	if a != nil && a.Look && len(expired.Keys) == 0 {
		return swept, nil
	}
	if a != nil && a.Look {
		err := a.Read(engine.Query(ctx, tx, d.sql.Existing, d.Keys(expired.Keys)))
		slices.SortFunc(a.Rows, func(x, y claims.Stored) int { return bytes.Compare(x.Key[:], y.Key[:]) })
		return swept, err
	}
	found := len(expired.Keys)
	if found > 0 {
		done, err := tx.ExecContext(ctx, d.sql.SweepDelete, d.Keys(expired.Keys), clock.UnixMicro())
		if err != nil {
			return swept, err
		}
		gone, err := done.RowsAffected()
		if err != nil {
			return swept, err
		}
		if swept.Keys = int(gone); gone > 0 {
			swept.Lag = clock.Sub(expired.Oldest)
		}
	}
	if found == limit { // this part may have more expired rows; continue behind the last one
		next = expired.Keys[found-1][:]
	} else {
		var n int
		if err := tx.QueryRowContext(ctx, d.sql.SweepEnd, next, sweepScan-swept.Keys).Scan(&n, &next); err != nil {
			return swept, err
		}
		swept.Done = n < sweepScan-swept.Keys
	}
	if swept.Done {
		next = nil
		if _, err := tx.ExecContext(ctx, d.sql.DropSettled, by.Limit); err != nil {
			return swept, err
		}
		if _, err := tx.ExecContext(ctx, d.shared.Operator.PassEnded); err != nil {
			return swept, err
		}
	}
	_, err = tx.ExecContext(ctx, d.sql.SweepDone, next, d.Time(expired.Latest))
	return swept, err
}
