package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/faults"
)

// DB is the engine for dialect.SQLite.
type DB struct {
	sql    dialect.SQLite
	box    dialect.SQLiteOutbox
	shared engine.Statements
	cfg    engine.Config
	turn   *writerTurn
}

// New returns the engine for SQLite.
func New(cfg engine.Config) (engine.Engine, error) {
	switch {
	case cfg.Schema != "":
		return engine.Engine{}, fmt.Errorf("sqlstore: Config.Schema %q: SQLite has none", cfg.Schema)
	case cfg.Isolation != sql.LevelDefault && cfg.Isolation != sql.LevelSerializable:
		return engine.Engine{}, fmt.Errorf("sqlstore: Config.Isolation %v: SQLite is always serializable",
			cfg.Isolation)
	}
	q := dialect.NewSQLite()
	d := &DB{sql: q, box: dialect.NewSQLiteOutbox(), cfg: cfg, turn: newWriterTurn(cfg.ClaimTimeout), shared: engine.Statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult,
		Lookup:      q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park,
		TakeDeadLetter: q.TakeDeadLetter, DeadLetters: q.DeadLetters,
		Operator: dialect.NewSQLiteOperator(),
	}}
	return engine.Engine{
		Tables: d, Transactions: d, Claims: d, Proofs: d, Errors: d, Values: d, OwnWindows: d,
		Outbox: engine.Outbox{Writer: d, Holds: d, Leases: d, Settler: d, Upkeep: d, Operations: d},
	}, nil
}

// Locate is never called, because all statements name the schema main.
func (d *DB) Locate(context.Context, engine.Queryer) (string, error) { return "", nil }

func (d *DB) Name(string) {}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.turn.enter(ctx) }

// Begin takes the write lock with the first statement, so that no other transaction can write between this
// transaction's snapshot and its claim.
func (d *DB) Begin(ctx, end context.Context, conn *sql.Conn, _ sql.IsolationLevel) (tx *sql.Tx, err error) {
	met := false
	err = d.RetryBusy(ctx, func() error {
		if met {
			d.turn.noteContention()
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
	if err != nil && !d.Fault(err).Busy { // a pragma that a handler set may be the cause
		d.discard(ctx, conn)
	}
	return tx, err
}

// ShortenLockWaits does nothing: SQLite has no limits of time for statements.
func (d *DB) ShortenLockWaits(context.Context, *engine.Transaction) error { return nil }

// Commit repeats COMMIT while other connections read: without a write-ahead log COMMIT needs to exclude readers, and
// keeps new ones out while it waits. tx.Commit ends the transaction in database/sql even if it fails, so Commit sends
// COMMIT as a statement. The caller still calls tx.Rollback. Its ROLLBACK then finds nothing to undo.
func (d *DB) Commit(ctx context.Context, tx *sql.Tx) error {
	return d.RetryBusy(ctx, func() error {
		_, err := tx.ExecContext(ctx, `COMMIT`)
		return err
	})
}

// RetryBusy repeats f while another process is writing. It waits for random times, because processes do not queue for
// SQLite's lock.
func (d *DB) RetryBusy(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(d.cfg.ClaimTimeout)
	for {
		err := f()
		code, known := resultCode(err)
		if !known || faults.OfSQLite(code, "") != driver.FaultContention || time.Now().After(deadline) {
			return err
		}
		if err := await.Sleep(ctx, time.Millisecond/2+backoff.Draw(time.Millisecond)); err != nil {
			return err
		}
	}
}

// Claim also refuses a connection to which something attached a file after Check, for example a hook of the driver.
func (d *DB) Claim(ctx context.Context, c *engine.Claim, rows []claims.Row) error {
	if err := checkAttached(ctx, c.Tx); err != nil {
		return err
	}
	c.Server = dialect.SQLiteHistory
	list := make([][]any, len(rows))
	for i, row := range rows {
		rec := row.Record
		consumer, tenant, id := d.cfg.NaturalKey(rec.Key)
		list[i] = []any{
			hex.EncodeToString(row.KeyHash[:]), engine.Fingerprint(rec.Fingerprint), consumer, tenant, id,
			max(engine.Micros(rec.Time), 0), engine.CeilMicros(rec.Keep()),
		}
	}
	if err := c.ReadInserted(engine.Query(ctx, c.Tx, d.sql.Claim, engine.JSON(list))); err != nil {
		return err
	}
	return c.ReadForgotten(c.Tx.QueryRowContext(ctx, d.sql.Forgotten)) // no sweep can run while this transaction writes
}

func (d *DB) Flush(context.Context, *engine.Claim) error { return nil }

// UseWindowsIn registers in tx, because a second connection could not write meanwhile. The caller must not remember the
// registrations, because tx may roll back.
func (d *DB) UseWindowsIn(ctx context.Context, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error) {
	registered := make(map[claims.Window]time.Time, len(due))
	for i, w := range due {
		if i == 0 { // a transaction that reads first may be unable to write
			if _, err := tx.ExecContext(ctx, d.sql.Lock); err != nil {
				return nil, err
			}
		}
		var until, clock engine.Instant
		err := tx.QueryRowContext(ctx, d.sql.WindowUse, w.Consumer, w.Seconds).Scan(&until, &clock)
		if errors.Is(err, sql.ErrNoRows) || err == nil && until.Sub(clock.Time) < driver.UseFor/2 {
			err = tx.QueryRowContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, driver.UseFor.Seconds()).Scan(&until)
		}
		if err != nil {
			return nil, fmt.Errorf("register consumer %q: %w", w.Consumer, err)
		}
		registered[w] = until.Time
	}
	return registered, nil
}

func (d *DB) UseWindow(ctx context.Context, db engine.Queryer, w claims.Window) (time.Time, error) {
	return engine.UseWindow(ctx, db, d.sql.UseWindow, w)
}

func (d *DB) Newer(ctx context.Context, tx *sql.Tx, object string, version int64) (bool, error) {
	return engine.Changed(tx.ExecContext(ctx, d.sql.Newer, object, version))
}

func (d *DB) SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (bool, error) {
	return engine.Changed(tx.ExecContext(ctx, d.sql.SaveResult, d.Key(k), result))
}

func (d *DB) Fits(int) error { return nil } // SQLite itself refuses values that are too long

// Committed reports whether the key is claimed. It cannot tell whether another process claimed the key later.
func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (bool, error) {
	keys := make([]dedup.KeyHash, 0, len(c.Inserted))
	for k := range c.Inserted {
		keys = append(keys, k)
	}
	committed := false
	err := engine.Query(ctx, q, d.sql.Existing, d.Keys(keys)).Each(func(engine.Row) error {
		committed = true
		return nil
	})
	return committed, err
}

func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	return d.Committed(ctx, tx, c)
}

// after the transaction has ended, each statement commits by itself
func (d *DB) LateWritesRollBack(context.Context, *engine.Transaction) bool { return false }

// InProgress returns false: a connection's open transaction is rolled back when the connection returns to the pool.
func (d *DB) InProgress(context.Context, *engine.Claim) (bool, error) { return false, nil }

func (d *DB) Refresh(context.Context) error { return nil }

func (d *DB) LockKeys(ctx context.Context, tx *sql.Tx, _ claims.Lock, _ time.Duration) error {
	_, err := tx.ExecContext(ctx, d.sql.Lock)
	return err
}

// CheckSession implements engine.Tables. Begin sets what the Store needs.
func (d *DB) CheckSession(context.Context) error { return nil }

// CheckNumbers implements engine.Tables.
func (d *DB) CheckNumbers(ctx context.Context) error {
	var last, used int64
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.Numbers).Scan(&last, &used); err != nil {
		return engine.Database.Errorf("sqlstore: read the numbers of the outbox: %w", err)
	}
	return claims.CheckNumbers(engine.Database, "the row of outbox_seq", "the outbox", last, used,
		fmt.Sprintf("UPDATE outbox_seq SET last = %d;", used))
}
