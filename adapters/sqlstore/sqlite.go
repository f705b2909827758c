package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// sqlite is the database of dialect.SQLite.
type sqlite struct {
	sql    dialect.SQLite
	box    dialect.SQLiteOutbox
	shared statements
	cfg    Config
	turn   *turn
}

func newSQLite(cfg Config) (database, error) {
	switch {
	case cfg.Schema != "":
		return nil, fmt.Errorf("sqlstore: Config.Schema %q: SQLite has none", cfg.Schema)
	case cfg.Isolation != sql.LevelDefault && cfg.Isolation != sql.LevelSerializable:
		return nil, fmt.Errorf("sqlstore: Config.Isolation %v: SQLite is always serializable", cfg.Isolation)
	}
	q := dialect.NewSQLite()
	return &sqlite{sql: q, box: dialect.NewSQLiteOutbox(), cfg: cfg, turn: newTurn(cfg.InFlightWait), shared: statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, Park: q.Park, Take: q.Take, Letters: q.Letters,
	}}, nil
}

func (d *sqlite) statements() *statements { return &d.shared }

func (d *sqlite) enter(ctx context.Context) (func(), error) { return d.turn.enter(ctx) }

// begin takes the write lock with the first statement, so that no other write can come between the transaction's
// snapshot and its claim.
func (d *sqlite) begin(ctx, end context.Context, conn *sql.Conn, _ sql.IsolationLevel) (tx *sql.Tx, err error) {
	met := false
	err = d.patiently(ctx, func() error {
		if met {
			d.turn.crowd()
		}
		met = true
		if tx, err = conn.BeginTx(end, nil); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, d.sql.Lock); err != nil {
			_ = tx.Rollback()
			tx = nil
		}
		return err
	})
	return tx, err
}

func (d *sqlite) commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

func (d *sqlite) restore(context.Context, *sql.Conn, bool) {}

// patiently asks again while another process is writing, at irregular intervals, because nobody queues.
func (d *sqlite) patiently(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(d.cfg.InFlightWait)
	for {
		err := f()
		code, known := sqliteCode(err)
		if !known || !dialect.SQLiteBusy(code) || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, time.Millisecond/2+rand.N(time.Millisecond)); err != nil {
			return err
		}
	}
}

func (d *sqlite) claim(ctx context.Context, c *claim, rows []claims.Row) error {
	list := make([][]any, len(rows))
	for i, row := range rows {
		rec := row.Record
		var consumer, tenant, id any
		if !d.cfg.Compact {
			consumer, tenant, id = rec.Key.Consumer, nullable(rec.Key.Tenant), rec.Key.ID
		}
		list[i] = []any{
			hex.EncodeToString(row.Derived[:]), fingerprint(rec.Fingerprint), consumer, tenant, id,
			max(micros(rec.Time), 0), ceilMicros(rec.Keep()),
		}
	}
	results, err := c.tx.QueryContext(ctx, d.sql.Claim, jsonText(list))
	if err := c.readInserted(results, err); err != nil {
		return err
	}
	return c.readForgotten(c.tx.QueryRowContext(ctx, d.sql.Forgotten)) // nobody forgets anything while this transaction writes
}

func (d *sqlite) settle(context.Context, *claim, bool) error { return nil }

func (d *sqlite) mark(ctx context.Context, tx *sql.Tx, _ string) (string, error) {
	_, err := tx.ExecContext(ctx, d.sql.Mark)
	return "", err
}

// prove releases the savepoint of mark: where the transaction is another one or none, there is no such savepoint.
func (d *sqlite) prove(ctx context.Context, tx *sql.Tx, _ string) error {
	_, err := tx.ExecContext(ctx, d.sql.Proof)
	if code, known := sqliteCode(err); known && code&0xff == 1 {
		return fmt.Errorf("%w: it is not the transaction that claimed: %w", dedup.ErrTxEnded, err)
	}
	return err
}

// useWindowsWithin registers in tx itself, as a second connection could not write. What it registers is not remembered,
// because tx may roll back.
func (d *sqlite) useWindowsWithin(ctx context.Context, s *Store, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error) {
	registered := make(map[claims.Window]time.Time, len(due))
	for i, w := range due {
		if i == 0 { // write before reading
			if _, err := tx.ExecContext(ctx, d.sql.Lock); err != nil {
				return nil, s.claimError(err)
			}
		}
		var until, clock instant
		err := tx.QueryRowContext(ctx, d.sql.WindowUse, w.Consumer, w.Seconds).Scan(&until, &clock)
		if errors.Is(err, sql.ErrNoRows) || err == nil && until.Sub(clock.Time) < dedup.UseFor/2 {
			err = tx.QueryRowContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, dedup.UseFor.Seconds()).Scan(&until)
		}
		if err != nil {
			return nil, s.claimError(fmt.Errorf("register consumer %q: %w", w.Consumer, err))
		}
		registered[w] = until.Time
	}
	return registered, nil
}

func (d *sqlite) useWindow(ctx context.Context, db queryer, w claims.Window) (time.Time, error) {
	return useWindow(ctx, db, d.sql.UseWindow, w)
}

func (d *sqlite) saveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (bool, error) {
	return changed(tx.ExecContext(ctx, d.sql.SaveResult, d.key(k), result))
}

func (d *sqlite) fits(int) error { return nil } // a value that is too long is refused by itself

func (d *sqlite) inFlight(error) bool { return false } // BUSY is contention for the file, not for a key

func (d *sqlite) aborted(error) bool { return false } // a failed statement leaves the transaction as it was before it

func (d *sqlite) undefined(err error) bool {
	code, known := sqliteCode(err)
	return known && code&0xff == 1 && (strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "no such column"))
}

func (d *sqlite) constraint(err error) bool {
	code, known := sqliteCode(err)
	return known && dialect.SQLiteConstraint(code)
}

func (d *sqlite) retryable(err error) bool {
	code, known := sqliteCode(err)
	return known && dialect.RetryableSQLite(code, err.Error())
}

func (d *sqlite) refused(err error) bool {
	code, known := sqliteCode(err)
	return known && dialect.RefusedSQLite(code)
}

// sqliteCode finds SQLite's result code in err without importing a driver: modernc.org/sqlite's error has this method.
// Other errors may have it too, so the type's name must say sqlite.
func sqliteCode(err error) (code int, known bool) {
	var e interface {
		error
		Code() int
	}
	if !errors.As(err, &e) || !strings.Contains(reflect.TypeOf(e).String(), "sqlite") {
		return 0, false
	}
	return e.Code(), true
}

func (d *sqlite) registered(context.Context, *sql.DB) error { return nil }
