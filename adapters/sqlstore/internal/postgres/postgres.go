package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/debounce"
	"github.com/txonce/txonce/internal/dialect"
)

// DB is the engine for dialect.Postgres.
type DB struct {
	plain    statements // statements that name no table; safe to use before Name sets the schema
	SQL      statements
	box      outboxStatements
	shared   engine.Statements
	cfg      engine.Config
	wait     string       // ClaimTimeout in the syntax of lock_timeout
	shards   atomic.Int64 // see shardsIn; 0: not known yet
	notifier debounce.Caller
	spare    engine.Spare

	PoolerWithin time.Duration // limits the check for a pooler
	PoolerRounds int           // of its second part; 0: it has none
}

type statements struct {
	dialect.Postgres
	dialect.PostgresSession
}

// New returns the engine for PostgreSQL.
func New(cfg engine.Config) (engine.Engine, error) {
	spare, err := engine.NewSpare(&cfg)
	d := &DB{
		cfg: cfg, plain: statements{dialect.NewPostgres(""), dialect.NewPostgresSession()}, spare: spare,
		PoolerWithin: poolerWithin, PoolerRounds: poolerRounds, wait: fmt.Sprintf("%dms", cfg.ClaimTimeout.Milliseconds()),
	}
	d.Name(cfg.Schema)
	return engine.Engine{
		Tables: d, Transactions: d, Claims: d, Proofs: d, Errors: d, Values: d, KeyProber: d, Holders: d,
		Outbox: engine.Outbox{Writer: d, Listening: d, Relay: d},
	}, err
}

func (d *DB) Locate(ctx context.Context, q engine.Queryer) (schema string, err error) {
	var session, fresh, path, freshPath string
	if err := q.QueryRowContext(ctx, d.plain.Schema).Scan(&session, new(string), &fresh, new(string), &path,
		&freshPath); err != nil {
		return "", err
	}
	return engine.Database.ChooseSchema(session, fresh)
}

func (d *DB) Name(schema string) {
	q := dialect.NewPostgres(schema)
	d.SQL, d.box = statements{q, dialect.NewPostgresSession()}, newOutboxStatements(schema)
	d.shared = engine.Statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult,
		Lookup:      q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park,
		TakeDeadLetter: q.TakeDeadLetter, DeadLetters: q.DeadLetters,
		Operator: dialect.NewPostgresOperator(schema),
	}
}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.spare.Enter(ctx) }

func (d *DB) Begin(_, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error) {
	if level == sql.LevelDefault {
		level = sql.LevelReadCommitted
	}
	return conn.BeginTx(end, &sql.TxOptions{Isolation: level})
}

func (d *DB) ShortenLockWaits(ctx context.Context, t *engine.Transaction) error {
	_, err := t.Tx.ExecContext(ctx, dialect.PostgresShortLockWaits)
	return err
}

func (d *DB) Commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

// Restore reads the session's settings again if Verify saw other settings than the claim did: the handler may have set
// them for its transaction only. The connection is closed if they still differ. A rollback undoes all settings.
func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Changed && !t.Spoilt {
		var settings string
		err := t.Conn.QueryRowContext(ctx, d.SQL.SessionSettings).Scan(&settings)
		t.Spoilt = err != nil || settings != t.Claim.Settings
	}
	if t.Spoilt {
		engine.Discard(t.Conn)
	}
}

func (d *DB) RetryBusy(_ context.Context, f func() error) error { return f() }

// Claim sends the claim and the query that follows each claim. lock_timeout counts for each lock separately, so a batch
// also has a limit for all its locks.
func (d *DB) Claim(ctx context.Context, c *engine.Claim, rows []claims.Row) error {
	err := d.insert(ctx, c, rows)
	if err != nil {
		return err
	}
	var restored, isolation string
	err = c.ReadForgotten(c.Tx.QueryRowContext(ctx, d.SQL.AfterClaim), &restored, &c.XID, &isolation, &c.Standbys,
		&c.Server, &c.Settings)
	if err != nil {
		return err
	}
	c.Snapshot = isolation != "read committed" && isolation != "read uncommitted"
	if err := claims.PostgresDurable(d.synchronous(c.Settings), c.Standbys); !d.cfg.AllowAsyncCommit {
		return err
	}
	return nil
}

func (d *DB) insert(ctx context.Context, c *engine.Claim, rows []claims.Row) error {
	wait := d.wait
	if short, is := driver.ClaimWait(ctx, d.cfg.ClaimTimeout); is {
		wait = fmt.Sprintf("%dms", max(short.Milliseconds(), 1))
	}
	if len(rows) == 1 {
		return d.inFlight(ctx, c.ReadInserted(engine.Query(ctx, c.Tx, d.SQL.ClaimOne, d.row(rows[0], c.IdleInTxTimeout, wait)...)))
	}
	limited, cancel := context.WithTimeout(ctx, d.cfg.ClaimTimeout+max(d.cfg.ClaimTimeout/4, 250*time.Millisecond))
	defer cancel()
	err := c.ReadInserted(engine.Query(limited, c.Tx, d.SQL.Claim, d.columns(rows, c.IdleInTxTimeout, wait)...))
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return engine.Waited(ctx, &d.cfg, err, len(rows))
	}
	return d.inFlight(ctx, err)
}

// inFlight turns an error of a claim into ErrInFlight if a timeout of the session, shorter than ClaimTimeout, ended the
// claim. A claim takes that long only if it waits for a key.
func (d *DB) inFlight(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	switch sqlState(err) {
	case "57014":
		return fmt.Errorf("%w: the session's statement_timeout ended the wait: %w", dedup.ErrInFlight, err)
	case "25P04":
		return fmt.Errorf("%w: the session's transaction_timeout ended the wait: %w", dedup.ErrInFlight, err)
	}
	return err
}

func (d *DB) Flush(ctx context.Context, c *engine.Claim) error {
	if !c.Standbys {
		return nil
	}
	_, err := c.Tx.ExecContext(ctx, d.SQL.FlushDuplicate)
	return err
}

func (d *DB) UseWindow(ctx context.Context, db engine.Queryer, w claims.Window) (time.Time, error) {
	return engine.UseWindow(ctx, db, d.SQL.UseWindow, w)
}

func (d *DB) Newer(ctx context.Context, tx *sql.Tx, object string, version int64) (bool, error) {
	return engine.Changed(tx.ExecContext(ctx, d.SQL.Newer, object, version))
}

func (d *DB) SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (bool, error) {
	return engine.Changed(tx.ExecContext(ctx, d.SQL.SaveResult, d.Key(k), result))
}

func (d *DB) Fits(int) error { return nil } // the server itself refuses values that are too long

func (d *DB) LockKeys(ctx context.Context, tx *sql.Tx, l claims.Lock, wait time.Duration) error {
	// rounded up
	_, err := tx.ExecContext(ctx, d.SQL.Lock, l.Number, fmt.Sprintf("%dms", (wait+time.Millisecond-1).Milliseconds()))
	return err
}

// HeldKeys inserts the keys in a transaction that is rolled back.
func (d *DB) HeldKeys(ctx context.Context, run engine.Run, keys []dedup.KeyHash) ([]bool, error) {
	plain := make([][16]byte, len(keys))
	for i, k := range keys {
		plain[i] = k
	}
	var listed string
	err := run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, d.SQL.HeldKeysOf(plain)); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, d.SQL.Held).Scan(&listed)
	})
	if err != nil {
		return nil, err
	}
	return dialect.ReadHeld(plain, listed), nil
}
