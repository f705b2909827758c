package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/storekit"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// DB is the engine of dialect.SQLite.
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
		return engine.Engine{}, fmt.Errorf("sqlstore: Config.Isolation %v: SQLite is always serializable", cfg.Isolation)
	}
	q := dialect.NewSQLite()
	d := &DB{sql: q, box: dialect.NewSQLiteOutbox(), cfg: cfg, turn: newWriterTurn(cfg.ClaimTimeout), shared: engine.Statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park, TakeDeadLetter: q.TakeDeadLetter, DeadLetters: q.DeadLetters,
	}}
	return engine.Engine{
		Tables: d, Transactions: d, Claims: d, Proofs: d, Errors: d, Values: d, OwnWindows: d,
		Outbox: engine.Outbox{Writer: d, Holds: d, Leases: d, Settler: d, Upkeep: d, Operations: d},
	}, nil
}

// Locate is not called: all statements name main.
func (d *DB) Locate(context.Context, engine.Queryer) (string, error) { return "", nil }

func (d *DB) Name(string) {}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.turn.enter(ctx) }

// Begin takes the write lock with the first statement, so that no other write can come between the transaction's
// snapshot and its claim.
func (d *DB) Begin(ctx, end context.Context, conn *sql.Conn, _ sql.IsolationLevel) (tx *sql.Tx, err error) {
	met := false
	err = d.RetryBusy(ctx, func() error {
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
	if err != nil && !d.Fault(err).Busy { // perhaps because of a pragma that a handler has set
		d.discard(ctx, conn)
	}
	return tx, err
}

// Commit asks again while others read, for without a write-ahead log COMMIT excludes them too; what waits here keeps new readers
// out. database/sql has a transaction end with its first Commit, so COMMIT goes as a statement, and its ROLLBACK finds nothing to do.
func (d *DB) Commit(ctx context.Context, tx *sql.Tx) error {
	return d.RetryBusy(ctx, func() error {
		_, err := tx.ExecContext(ctx, `COMMIT`)
		return err
	})
}

func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Spoilt {
		d.discard(ctx, t.Conn)
	}
}

// discard keeps the connection of a database in memory, which ends with it.
func (d *DB) discard(ctx context.Context, conn *sql.Conn) {
	var file string
	if err := conn.QueryRowContext(ctx, d.sql.File).Scan(&file); err != nil || file != "" {
		engine.Discard(conn)
	}
}

// RetryBusy asks again while another process is writing, at irregular intervals, because nobody queues.
func (d *DB) RetryBusy(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(d.cfg.ClaimTimeout)
	for {
		err := f()
		code, known := resultCode(err)
		if !known || !dialect.SQLiteBusy(code) || time.Now().After(deadline) {
			return err
		}
		if err := await.Sleep(ctx, time.Millisecond/2+rand.N(time.Millisecond)); err != nil {
			return err
		}
	}
}

func (d *DB) Claim(ctx context.Context, c *engine.Claim, rows []claims.Row) error {
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
	return c.ReadForgotten(c.Tx.QueryRowContext(ctx, d.sql.Forgotten)) // nobody forgets anything while this transaction writes
}

func (d *DB) Flush(context.Context, *engine.Claim) error { return nil }

// Stamp also counts the connection's temporary tables and triggers, before a handler has the transaction.
func (d *DB) Stamp(ctx context.Context, t *engine.Transaction) error {
	if t.Proof == "" {
		if err := t.Tx.QueryRowContext(ctx, d.sql.Temporary).Scan(&t.Proof); err != nil {
			return err
		}
	}
	_, err := t.Tx.ExecContext(ctx, d.sql.Mark)
	return err
}

func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if err := d.Verify(ctx, t); err != nil {
		return err
	}
	return d.Stamp(ctx, t)
}

// Verify releases the savepoint of Stamp: where the transaction is another one or none, there is no such savepoint. When the handler
// has left a temporary table or trigger, which later handlers would meet, the connection is closed after the transaction.
func (d *DB) Verify(ctx context.Context, t *engine.Transaction) error {
	var temporary string
	if err := t.Tx.QueryRowContext(ctx, d.sql.Temporary).Scan(&temporary); err != nil && !errors.Is(err, sql.ErrTxDone) || temporary != t.Proof {
		t.Spoilt = true
	}
	_, err := t.Tx.ExecContext(ctx, d.sql.Proof)
	if code, known := resultCode(err); known && code&0xff == codeError {
		return fmt.Errorf("%w: it is not the transaction that claimed: %w", dedup.ErrTxEnded, err)
	}
	return err
}

// UseWindowsIn registers in tx itself, because a second connection could not write. What it registers must not be remembered,
// because tx may roll back.
func (d *DB) UseWindowsIn(ctx context.Context, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error) {
	registered := make(map[claims.Window]time.Time, len(due))
	for i, w := range due {
		if i == 0 { // write before reading
			if _, err := tx.ExecContext(ctx, d.sql.Lock); err != nil {
				return nil, err
			}
		}
		var until, clock engine.Instant
		err := tx.QueryRowContext(ctx, d.sql.WindowUse, w.Consumer, w.Seconds).Scan(&until, &clock)
		if errors.Is(err, sql.ErrNoRows) || err == nil && until.Sub(clock.Time) < storekit.UseFor/2 {
			err = tx.QueryRowContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, storekit.UseFor.Seconds()).Scan(&until)
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

func (d *DB) SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (bool, error) {
	return engine.Changed(tx.ExecContext(ctx, d.sql.SaveResult, d.Key(k), result))
}

func (d *DB) Fits(int) error { return nil } // a value that is too long is refused by itself

// Committed reports that the key is claimed, perhaps by another process since.
func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (bool, error) {
	keys := make([]dedup.KeyHash, 0, len(c.Inserted))
	for k := range c.Inserted {
		keys = append(keys, k)
	}
	stands := false
	err := engine.Query(ctx, q, d.sql.Existing, d.Keys(keys)).Each(func(*sql.Rows) error {
		stands = true
		return nil
	})
	return stands, err
}

func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	return d.Committed(ctx, tx, c)
}

func (d *DB) LateWritesRollBack(context.Context, *engine.Transaction) bool { return false } // each statement is then committed by itself

// InProgress: what a connection has not committed is rolled back when it is given back.
func (d *DB) InProgress(context.Context, *engine.Claim) (bool, error) { return false, nil }

func (d *DB) Refresh(context.Context) error { return nil }

func (d *DB) LockKeys(ctx context.Context, tx *sql.Tx, _ claims.Lock, _ time.Duration) error {
	_, err := tx.ExecContext(ctx, d.sql.Lock)
	return err
}
