package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// purgePages is how many pages of the table one Purge reads: 3,000 to 4,500 rows, which keeps transactions short.
const purgePages = 32

// sweeper deletes expired keys.
type sweeper struct{ *sessions }

// Purge implements dedup.Purger.
func (s *sweeper) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	return s.inLease(ctx, by, func(tx pgx.Tx, page, pages int64, swept *dedup.SweepResult) error {
		return s.sweep(ctx, tx, by, page, pages, swept, s.sql.SweepDelete, page, page+purgePages, by.Limit, swept.Clock)
	})
}

// PurgeArchived implements dedup.Archiver.
func (s *sweeper) PurgeArchived(ctx context.Context, by dedup.Sweep,
	archive func(ctx context.Context, expired []dedup.Expired) error,
) (dedup.SweepResult, error) {
	var expired []dedup.Expired
	var keys []dedup.KeyHash
	swept, err := s.inLease(ctx, by, func(tx pgx.Tx, page, _ int64, swept *dedup.SweepResult) error {
		var row storedRow
		rows, _ := tx.Query(ctx, s.sql.SweepExpired, page, page+purgePages, by.Limit, swept.Clock)
		_, err := pgx.ForEachRow(rows, row.dest(), func() error {
			stored := row.stored()
			expired, keys = append(expired, stored.Expired()), append(keys, stored.Key)
			row = storedRow{}
			return nil
		})
		return err
	})
	if err != nil || swept.Busy {
		return swept, err
	}
	if len(expired) > 0 {
		if err := archive(ctx, expired); err != nil {
			return dedup.SweepResult{}, fmt.Errorf("pgxstore: purge: %w", err)
		}
	}
	return s.inLease(ctx, by, func(tx pgx.Tx, page, pages int64, swept *dedup.SweepResult) error {
		return s.sweep(ctx, tx, by, page, pages, swept, s.sql.SweepArchived, pgUUIDs(keys), swept.Clock)
	})
}

// inLease calls f in a transaction that has the lease, and commits it. f gets the next page of the table, and the number
// of pages.
func (s *sweeper) inLease(ctx context.Context, by dedup.Sweep,
	f func(tx pgx.Tx, page, pages int64, swept *dedup.SweepResult) error,
) (swept dedup.SweepResult, err error) {
	if by.Owner == "" || by.Lease <= 0 || by.Limit <= 0 {
		return swept, errors.New("pgxstore: purge: Sweep.Owner, Lease and Limit are required")
	}
	if err := s.checkSchema(ctx); err != nil { // each time: a newer release may have changed the tables since
		return swept, err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return swept, database.Errorf("pgxstore: purge: connect: %w", err)
	}
	defer func() { s.release(ctx, conn, err) }()

	page, pages, tx, err := s.sweepLease(ctx, conn.Conn(), by, &swept.Clock)
	if tx != nil {
		defer rollback(ctx, tx)
	}
	if ahead := by.ClockAhead(swept.Clock); ahead != nil {
		return swept, ahead
	}
	if swept.Busy = errors.Is(err, pgx.ErrNoRows); swept.Busy {
		return swept, nil
	}
	if err != nil {
		return swept, purgeError(err)
	}
	if page >= pages {
		page = 0 // the table was truncated or rewritten since the last Purge
	}
	if err := f(tx, page, pages, &swept); err != nil {
		return swept, purgeError(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := commitError(tx.Commit(ctx)); err != nil {
		return dedup.SweepResult{}, err
	}
	return swept, nil
}

// sweep deletes expired rows by a statement, and goes on behind the next pages of the table.
func (s *sweeper) sweep(ctx context.Context, tx pgx.Tx, by dedup.Sweep, page, pages int64, swept *dedup.SweepResult,
	sql string, args ...any,
) error {
	var latest *time.Time
	var lag float64
	if err := tx.QueryRow(ctx, sql, args...).Scan(&swept.Keys, &latest, &lag); err != nil {
		return err
	}
	swept.Lag = time.Duration(lag * float64(time.Second))
	if swept.Keys < by.Limit { // otherwise these pages may hold more expired rows
		page += purgePages
	}
	if swept.Done = page >= pages; swept.Done {
		page = 0
		if _, err := tx.Exec(ctx, s.sql.DropSettled, by.Limit); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.operations.PassEnded); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, s.sql.SweepDone, page, latest, swept.Clock)
	return err
}

// sweepLease begins a transaction, limits its duration, reads the clock and takes the lease. It returns pgx.ErrNoRows
// when another sweeper has the lease.
func (s *sweeper) sweepLease(ctx context.Context, conn *pgx.Conn, by dedup.Sweep,
	clock *time.Time,
) (page, pages int64, tx pgx.Tx, err error) {
	b := &pgx.Batch{}
	// above READ COMMITTED a sweep would fail on each row that changed
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(s.sql.SweepSettings, fmt.Sprintf("%dms", (10*time.Second).Milliseconds()))
	b.Queue(s.sql.SweepClock).QueryRow(func(row pgx.Row) error { return row.Scan(clock) })
	b.Queue(s.sql.SweepLease, by.Owner, by.Lease.Seconds()).QueryRow(func(row pgx.Row) error {
		return row.Scan(&page, &pages)
	})
	results := conn.SendBatch(ctx, b)
	err = results.Close()
	return page, pages, results.Tx(), err
}

// purgeError classifies an error of a sweep. Every failure of a sweep, such as a lock timeout, is the database's and
// temporary.
func purgeError(err error) error {
	if isUndefined(err) {
		return claimError(err)
	}
	return database.Errorf("pgxstore: purge: %w", err)
}
