package mysql

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// sweepScan is how many rows one Purge reads. That takes about 10 ms.
const sweepScan = 10_000

func (d *DB) Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep, a *engine.Archive,
) (swept dedup.SweepResult, err error) {
	var owner, next []byte
	var lease, forgotten, clock engine.Instant
	read := func(query string) error {
		return tx.QueryRowContext(ctx, query).Scan(&owner, &lease, &next, &forgotten, &clock)
	}
	err = read(d.sql.SweepLease)
	if errors.Is(err, sql.ErrNoRows) { // locked: a sweep is running, or another sweeper is checking the lease
		if err = read(d.sql.SweepLook); err == nil && (!bytes.Equal(owner, []byte(by.Owner)) ||
			lease.Before(clock.Time)) {
			swept.Clock = clock.Time
			return swept, cmp.Or(by.ClockAhead(swept.Clock), engine.ErrBusy)
		}
		if err == nil {
			err = read(d.sql.SweepWait)
		}
	}
	swept.Clock = clock.Time
	if ahead := by.ClockAhead(swept.Clock); ahead != nil {
		return swept, ahead
	}
	switch {
	case errors.Is(err, sql.ErrNoRows): // if the row is missing, claims report that
		return swept, engine.ErrBusy
	case err != nil:
		return swept, err
	case owner != nil && !bytes.Equal(owner, []byte(by.Owner)) && !lease.Before(clock.Time) &&
		!lease.After(clock.Add(by.Lease)):
		return swept, engine.ErrBusy
	}
	var expired engine.Expired
	if a != nil && !a.Look {
		expired = a.Expired()
	} else if expired, err = engine.ReadExpired(engine.Query(ctx, tx, d.sql.SweepExpired, hex.EncodeToString(next),
		sweepScan, clock.UnixMicro(), by.Limit)); err != nil {
		return swept, err
	}
	if a != nil && a.Look {
		if len(expired.Keys) > 0 {
			if err := a.Read(engine.Query(ctx, tx, d.sql.SweepRows, d.Keys(expired.Keys))); err != nil {
				return swept, err
			}
		}
		slices.SortFunc(a.Rows, func(x, y claims.Stored) int { return bytes.Compare(x.Key[:], y.Key[:]) })
		var from any // nil: the pass begins at the first key
		if next != nil {
			from = hex.EncodeToString(next)
		}
		_, err := tx.ExecContext(ctx, d.sql.SweepDone, []byte(by.Owner), clock.Add(by.Lease).UnixMicro(), from,
			d.Time(forgotten.Time))
		return swept, err
	}
	if len(expired.Keys) == min(by.Limit, sweepScan) {
		// this part may have more expired rows; continue behind the last one
		next = expired.Keys[len(expired.Keys)-1][:]
	} else {
		var n int
		if err := tx.QueryRowContext(ctx, d.sql.SweepEnd, hex.EncodeToString(next), sweepScan).Scan(&n,
			&next); err != nil {
			return swept, err
		}
		swept.Done = n < sweepScan
	}
	if len(expired.Keys) > 0 {
		if expired, err = engine.ReadExpired(engine.Query(ctx, tx, d.sql.SweepLock, d.Keys(expired.Keys),
			clock.UnixMicro())); err != nil {
			return swept, err
		}
		if _, err := tx.ExecContext(ctx, d.sql.SweepDelete, d.Keys(expired.Keys)); err != nil {
			return swept, err
		}
	}
	if swept.Keys = len(expired.Keys); swept.Keys > 0 {
		swept.Lag = clock.Sub(expired.Oldest)
		if expired.Latest.After(forgotten.Time) {
			forgotten.Time = expired.Latest
		}
	}
	var from any // nil: start again at the first key
	if swept.Done {
		if err := d.dropSettled(ctx, tx, by.Limit); err != nil {
			return swept, err
		}
		if _, err := tx.ExecContext(ctx, d.shared.Operator.PassEnded); err != nil {
			return swept, err
		}
	} else {
		from = hex.EncodeToString(next)
	}
	_, err = tx.ExecContext(ctx, d.sql.SweepDone, []byte(by.Owner), clock.Add(by.Lease).UnixMicro(), from,
		d.Time(forgotten.Time))
	return swept, err
}

// dropSettled deletes dead letters whose keys have been claimed with the same content since.
func (d *DB) dropSettled(ctx context.Context, tx *sql.Tx, limit int) error {
	var ids any = limit
	for _, query := range []string{d.sql.SettledLetters, d.sql.LockLetters, d.sql.StillSettled} {
		found, err := engine.Column[engine.KeyHash](engine.Query(ctx, tx, query, ids))
		if err != nil || len(found) == 0 {
			return err
		}
		ids = engine.KeyList(found)
	}
	_, err := tx.ExecContext(ctx, d.sql.DropLetters, ids)
	return err
}
