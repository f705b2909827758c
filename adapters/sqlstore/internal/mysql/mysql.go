package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
)

// DB is the engine for dialect.MySQL.
type DB struct {
	Plain   dialect.MySQL // statements that name no table; safe to use before Name sets the schema
	sql     dialect.MySQL
	box     dialect.MySQLOutbox
	shared  engine.Statements
	cfg     engine.Config
	spare   engine.Spare
	server  atomic.Pointer[server] // nil: not known yet
	flushes atomic.Bool            // a duplicate must write; see dialect.MySQL.Touch
	packet  atomic.Int64           // max_allowed_packet; 0: not known yet
	shards  atomic.Int64           // see shardsIn; 0: not known yet
}

// New returns the engine for MySQL and MariaDB.
func New(cfg engine.Config) (engine.Engine, error) {
	spare, err := engine.NewSpare(&cfg)
	d := &DB{cfg: cfg, Plain: dialect.NewMySQL(""), spare: spare}
	d.Name(cfg.Schema)
	return engine.Engine{
		Tables: d, Transactions: d, Claims: d, Proofs: d, Errors: d, Values: d, KeyProber: d, Holders: d,
		Outbox: engine.Outbox{Writer: d, Holds: d, Leases: d, Settler: d, Upkeep: d, Operations: d},
	}, err
}

func (d *DB) Locate(ctx context.Context, q engine.Queryer) (schema string, err error) {
	err = q.QueryRowContext(ctx, d.Plain.Locate).Scan(&schema)
	return schema, err
}

func (d *DB) Name(schema string) {
	q := dialect.NewMySQL(schema)
	d.sql, d.box = q, dialect.NewMySQLOutbox(schema)
	d.shared = engine.Statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult,
		Lookup:      q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park,
		TakeDeadLetter: q.TakeDeadLetter, DeadLetters: q.DeadLetters,
		Operator: dialect.NewMySQLOperator(schema),
	}
}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.spare.Enter(ctx) }

func (d *DB) RetryBusy(_ context.Context, f func() error) error { return f() }

// Begin begins a transaction in a session with autocommit off. When a handler's transaction has ended unexpectedly, the
// handler's next writes then begin another transaction, which Verify detects. With autocommit on they would be
// committed at once.
func (d *DB) Begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error) {
	server, err := d.describe(ctx, conn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, server.enter[level]); err != nil {
		engine.Discard(conn)
		return nil, err
	}
	tx, err := conn.BeginTx(end, nil) // the session already has the isolation level
	if err != nil {
		engine.Discard(conn)
	}
	return tx, err
}

// ShortenLockWaits changes the session, so the connection is closed afterwards. The limit counts whole seconds. On
// MariaDB a statement does not wait at all, on MySQL for a second.
func (d *DB) ShortenLockWaits(ctx context.Context, t *engine.Transaction) error {
	t.Spoilt = true
	wait := 1
	if d.server.Load().mariaDB {
		wait = 0
	}
	_, err := t.Tx.ExecContext(ctx, fmt.Sprintf(`SET innodb_lock_wait_timeout = %d, lock_wait_timeout = %[1]d`, wait))
	return err
}

// Commit sends COMMIT as a statement, because the driver's own Commit has no time limit: it would wait forever for a
// server that stopped answering. The caller still calls tx.Rollback to end tx in database/sql. Its ROLLBACK then finds
// nothing to undo.
func (d *DB) Commit(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `COMMIT`)
	return err
}

// Restore resets the session's settings. Setting autocommit commits an open transaction, so Restore closes the
// connection if the transaction may still be open. It also closes the connection if the handler changed the session's
// settings.
func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Ended && !t.Spoilt {
		if _, err := t.Conn.ExecContext(ctx, d.server.Load().leave); err == nil {
			return
		}
	}
	engine.Discard(t.Conn)
}
