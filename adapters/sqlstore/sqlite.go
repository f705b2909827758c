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
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park, Take: q.Take, Letters: q.Letters,
	}}, nil
}

// locate is not called: all statements name main.
func (d *sqlite) locate(context.Context, queryer) (string, error) { return "", nil }

func (d *sqlite) name(string) {}

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
	if err != nil && !sqliteBusy(err) { // perhaps because of a pragma that a handler has set
		d.discard(ctx, conn)
	}
	return tx, err
}

// commit asks again while others read, for without a write-ahead log COMMIT excludes them too; what waits here keeps new readers
// out. database/sql has a transaction end with its first Commit, so COMMIT goes as a statement, and its ROLLBACK finds nothing to do.
func (d *sqlite) commit(ctx context.Context, tx *sql.Tx) error {
	return d.patiently(ctx, func() error {
		_, err := tx.ExecContext(ctx, `COMMIT`)
		return err
	})
}

func (d *sqlite) restore(ctx context.Context, t *session) {
	if t.spoilt {
		d.discard(ctx, t.conn)
	}
}

// discard keeps the connection of a database in memory, which ends with it.
func (d *sqlite) discard(ctx context.Context, conn *sql.Conn) {
	var file string
	if err := conn.QueryRowContext(ctx, d.sql.File).Scan(&file); err != nil || file != "" {
		discard(conn)
	}
}

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

func (d *sqlite) flush(context.Context, *claim) error { return nil }

// mark also counts the connection's temporary tables and triggers, before a handler has the transaction.
func (d *sqlite) mark(ctx context.Context, t *session) error {
	if t.proof == "" {
		if err := t.tx.QueryRowContext(ctx, d.sql.Temporary).Scan(&t.proof); err != nil {
			return err
		}
	}
	_, err := t.tx.ExecContext(ctx, d.sql.Mark)
	return err
}

func (d *sqlite) verify(ctx context.Context, t *session) error {
	if err := d.prove(ctx, t); err != nil {
		return err
	}
	return d.mark(ctx, t)
}

// prove releases the savepoint of mark: where the transaction is another one or none, there is no such savepoint. When the handler
// has left a temporary table or trigger, which later handlers would meet, the connection is closed after the transaction.
func (d *sqlite) prove(ctx context.Context, t *session) error {
	var temporary string
	if err := t.tx.QueryRowContext(ctx, d.sql.Temporary).Scan(&temporary); err != nil && !errors.Is(err, sql.ErrTxDone) || temporary != t.proof {
		t.spoilt = true
	}
	_, err := t.tx.ExecContext(ctx, d.sql.Proof)
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

// sqliteBusy reports that err is of a statement that waited for another connection's lock.
func sqliteBusy(err error) bool {
	code, known := sqliteCode(err)
	return known && code&0xff == 5 // BUSY
}

func (d *sqlite) elsewhere(error) bool { return false } // nothing tells one file's errors from another's

// mayEnd: SQLite may roll all back after these, see https://sqlite.org/lang_transaction.html.
func (d *sqlite) mayEnd(err error) bool {
	switch code, _ := sqliteCode(err); code & 0xff {
	case 5, 7, 9, 10, 13: // BUSY, NOMEM, INTERRUPT, IOERR, FULL
		return true
	}
	return false
}

func (d *sqlite) idled(error) bool { return false }

func (d *sqlite) ambiguous(err error) bool {
	code, known := sqliteCode(err)
	return known && (code&0xff == 1 || code&0xff == 23) // a deployment's errors, see dialect.RetryableSQLite, and AUTH
}

// stands reports that the key is claimed, perhaps by another process since.
func (d *sqlite) stands(ctx context.Context, q queryer, c *claim) (bool, error) {
	keys := make([]dedup.Derived, 0, len(c.Inserted))
	for k := range c.Inserted {
		keys = append(keys, k)
	}
	rows, err := q.QueryContext(ctx, d.sql.Existing, d.keys(keys))
	stands := false
	err = each(rows, err, func(*sql.Rows) error {
		stands = true
		return nil
	})
	return stands, err
}

func (d *sqlite) committed(ctx context.Context, tx *sql.Tx, c *claim) (bool, error) {
	return d.stands(ctx, tx, c)
}

func (d *sqlite) writesEnd(context.Context, *session) bool { return false } // each statement is then committed by itself

// inProgress: what a connection has not committed is rolled back when it is given back.
func (d *sqlite) inProgress(context.Context, *claim) (bool, error) { return false, nil }

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
