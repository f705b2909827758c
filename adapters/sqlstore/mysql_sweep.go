package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
)

// mysqlScan is how many rows one Purge looks at: about 10 ms.
const mysqlScan = 10_000

func (d *mysql) sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep) (swept dedup.SweepResult, err error) {
	var owner, next []byte
	var lease, forgotten, clock instant
	read := func(query string) error {
		return tx.QueryRowContext(ctx, query).Scan(&owner, &lease, &next, &forgotten, &clock)
	}
	err = read(d.sql.SweepLease)
	if errors.Is(err, sql.ErrNoRows) { // locked: by a sweep, or by one that sees whether it may begin
		if err = read(d.sql.SweepLook); err == nil && (!bytes.Equal(owner, []byte(by.Owner)) || lease.Before(clock.Time)) {
			swept.Clock = clock.Time
			return swept, cmp.Or(by.ClockAhead(swept.Clock), errBusy)
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
	case errors.Is(err, sql.ErrNoRows): // claims say that the row is missing
		return swept, errBusy
	case err != nil:
		return swept, err
	case owner != nil && !bytes.Equal(owner, []byte(by.Owner)) && !lease.Before(clock.Time):
		return swept, errBusy
	}
	expired, err := d.expired(ctx, tx, d.sql.SweepExpired, hex.EncodeToString(next), mysqlScan, clock.UnixMicro(), by.Limit)
	if err != nil {
		return swept, err
	}
	if len(expired.keys) == min(by.Limit, mysqlScan) { // there may be more in this part, or it is all gone
		next = expired.keys[len(expired.keys)-1][:]
	} else {
		var n int
		if err := tx.QueryRowContext(ctx, d.sql.SweepEnd, hex.EncodeToString(next), mysqlScan).Scan(&n, &next); err != nil {
			return swept, err
		}
		swept.Done = n < mysqlScan
	}
	if len(expired.keys) > 0 {
		if expired, err = d.expired(ctx, tx, d.sql.SweepLock, d.keys(expired.keys), clock.UnixMicro()); err != nil {
			return swept, err
		}
		if _, err := tx.ExecContext(ctx, d.sql.SweepDelete, d.keys(expired.keys)); err != nil {
			return swept, err
		}
	}
	if swept.Keys = len(expired.keys); swept.Keys > 0 {
		swept.Lag = clock.Sub(expired.oldest)
		if expired.latest.After(forgotten.Time) {
			forgotten.Time = expired.latest
		}
	}
	var from any // the beginning
	if swept.Done {
		if err := d.dropSettled(ctx, tx, by.Limit); err != nil {
			return swept, err
		}
	} else {
		from = hex.EncodeToString(next)
	}
	_, err = tx.ExecContext(ctx, d.sql.SweepDone, []byte(by.Owner), clock.Add(by.Lease).UnixMicro(), from, d.time(forgotten.Time))
	return swept, err
}

// expiredRows are some, in the order of their keys.
type expiredRows struct {
	keys           []dedup.KeyHash
	oldest, latest time.Time
}

func (d *mysql) expired(ctx context.Context, tx *sql.Tx, query string, args ...any) (found expiredRows, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	return found, each(rows, err, func(rows *sql.Rows) error {
		var k derived
		var expires instant
		if err := rows.Scan(&k, &expires); err != nil {
			return err
		}
		found.keys = append(found.keys, dedup.KeyHash(k))
		if found.latest.IsZero() || expires.After(found.latest) {
			found.latest = expires.Time
		}
		if found.oldest.IsZero() || expires.Before(found.oldest) {
			found.oldest = expires.Time
		}
		return nil
	})
}

// dropSettled deletes letters whose keys were claimed for the same content since.
func (d *mysql) dropSettled(ctx context.Context, tx *sql.Tx, limit int) error {
	var ids any = limit
	for _, query := range []string{d.sql.SettledLetters, d.sql.LockLetters, d.sql.StillSettled} {
		var found []dedup.KeyHash
		rows, err := tx.QueryContext(ctx, query, ids)
		err = each(rows, err, func(rows *sql.Rows) error {
			var id derived
			err := rows.Scan(&id)
			found = append(found, dedup.KeyHash(id))
			return err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		ids = d.keys(found)
	}
	_, err := tx.ExecContext(ctx, d.sql.DropLetters, ids)
	return err
}
