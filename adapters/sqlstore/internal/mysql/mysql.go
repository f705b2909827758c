package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/storekit"
	"github.com/txonce/txonce/internal/claims"
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
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park, TakeDeadLetter: q.TakeDeadLetter, DeadLetters: q.DeadLetters,
		Operator: dialect.NewMySQLOperator(schema),
	}
}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.spare.Enter(ctx) }

func (d *DB) RetryBusy(_ context.Context, f func() error) error { return f() }

// Begin begins a transaction in a session with autocommit off. When a handler's transaction has ended unexpectedly, the
// handler's next writes then begin another transaction, which Verify detects. With autocommit on they would be committed at
// once.
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

// Commit sends COMMIT as a statement, because the driver's own Commit has no time limit: it would wait forever for a server
// that stopped answering. The caller still calls tx.Rollback to end tx in database/sql. Its ROLLBACK then finds nothing to
// undo.
func (d *DB) Commit(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `COMMIT`)
	return err
}

// Restore resets the session's settings. Setting autocommit commits an open transaction, so Restore closes the connection if
// the transaction may still be open. It also closes the connection if the handler changed the session's settings.
func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Ended && !t.Spoilt {
		if _, err := t.Conn.ExecContext(ctx, d.server.Load().leave); err == nil {
			return
		}
	}
	engine.Discard(t.Conn)
}

// valid asks the driver whether conn takes statements. Without this check, a statement sent while rows are open would look like
// a lost connection.
func valid(conn *sql.Conn) (yes bool) {
	err := conn.Raw(func(c any) error {
		v, asks := c.(driver.Validator)
		yes = !asks || v.IsValid()
		return nil
	})
	return yes && err == nil
}

// Claim inserts the missing rows, and then reads which rows carry this claim's token: those are the rows that it inserted.
func (d *DB) Claim(ctx context.Context, c *engine.Claim, rows []claims.Row) error {
	server, err := d.describe(ctx, c.Tx)
	if err != nil {
		return err
	}
	var mine engine.Token
	rand.Read(mine[:]) // never fails
	if err := d.insert(ctx, c, server, mine, rows); err != nil {
		return err
	}
	if err := d.readClaimed(ctx, c, mine, rows); err != nil {
		return err
	}
	// No statement shows the isolation level to an unprivileged user. A caller's transaction may have any level.
	c.Snapshot = !c.Own || d.cfg.Isolation > sql.LevelReadCommitted
	if c.Snapshot || !c.Old() {
		return nil
	}
	return c.ReadForgotten(c.Tx.QueryRowContext(ctx, d.sql.Forgotten))
}

// insert limits how long the claim waits for a transaction that holds a key. innodb_lock_wait_timeout alone is not enough: it
// counts whole seconds, and starts again for each lock.
func (d *DB) insert(ctx context.Context, c *engine.Claim, server *server, mine engine.Token, rows []claims.Row) (err error) {
	prefix := server.claimPrefix
	wait, short := dedup.ClaimWait(ctx, d.cfg.ClaimTimeout)
	switch {
	case server.mariaDB && short && wait < time.Second:
		prefix = mariaDBNoWait
	case server.mariaDB && short:
		prefix = mariaDBWait(wait)
	case !server.mariaDB:
		seconds := int64(math.Ceil(d.cfg.ClaimTimeout.Seconds()))
		if short {
			seconds = int64(math.Ceil(wait.Seconds()))
		}
		if _, err := c.Tx.ExecContext(ctx, d.sql.LimitWait+fmt.Sprint(seconds)); err != nil {
			return err
		}
		defer func() {
			if _, restore := c.Tx.ExecContext(ctx, d.sql.RestoreWait); err == nil {
				err = restore
			}
		}()
	}
	limited, cancel := context.WithTimeout(ctx, d.batchWait(len(rows)))
	defer cancel()
	for part := range slices.Chunk(rows, claimRows) {
		query := prefix + d.sql.Claim + strings.Repeat(d.sql.ClaimRow+", ", len(part)-1) + d.sql.ClaimRow + d.sql.ClaimAgain
		if _, err := c.Tx.ExecContext(limited, query, d.values(part, mine)...); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return engine.Waited(ctx, &d.cfg, err, len(rows))
			}
			return err
		}
	}
	return nil
}

// mariaDBNoWait is the prefix of a claim that waits for less than a second.
const mariaDBNoWait = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "

// batchWait is longer than the server's limit for a single lock.
func (d *DB) batchWait(rows int) time.Duration {
	if rows == 1 {
		return d.cfg.ClaimTimeout + engine.AnswerWithin
	}
	wait := max(d.cfg.ClaimTimeout, time.Second)
	return wait + wait/4
}

// claimRows is how many rows one statement claims. A statement takes at most 65,535 parameters.
const claimRows = 1000

func (d *DB) values(rows []claims.Row, mine engine.Token) []any {
	args := make([]any, 0, 8*len(rows))
	for _, row := range rows {
		rec := row.Record
		consumer, tenant, id := d.cfg.NaturalKey(rec.Key)
		args = append(args, d.Key(row.KeyHash), hex.EncodeToString(mine[:]), max(engine.Micros(rec.Time), 0), engine.CeilMicros(rec.Keep()),
			engine.Fingerprint(rec.Fingerprint), consumer, tenant, id)
	}
	return args
}

func (d *DB) readClaimed(ctx context.Context, c *engine.Claim, mine engine.Token, rows []claims.Row) error {
	query, arg := d.sql.ClaimedOne, d.Key(rows[0].KeyHash)
	if len(rows) > 1 {
		keys := make([]dedup.KeyHash, len(rows))
		for i, row := range rows {
			keys[i] = row.KeyHash
		}
		query, arg = d.sql.Claimed, d.Keys(keys)
	}
	return engine.Query(ctx, c.Tx, query, arg).Each(func(found engine.Row) error {
		var k engine.KeyHash
		var whose []byte
		var clock engine.Instant
		if err := found.Scan(&k, &whose, &clock); err != nil {
			return err
		}
		if string(whose) == string(mine[:]) {
			c.Inserted[dedup.KeyHash(k)] = true
			c.Token, c.Witness = mine, dedup.KeyHash(k)
			c.Clock = clock.Time
		}
		return nil
	})
}

func (d *DB) Flush(ctx context.Context, c *engine.Claim) error {
	if !d.flushes.Load() {
		return nil
	}
	var known []dedup.KeyHash
	for _, row := range c.Plan.Rows {
		if !c.Inserted[row.KeyHash] {
			known = append(known, row.KeyHash)
		}
	}
	var other engine.Token
	rand.Read(other[:])
	_, err := c.Tx.ExecContext(ctx, d.sql.Touch, d.Keys(known), hex.EncodeToString(other[:]))
	return err
}

func (d *DB) Stamp(ctx context.Context, t *engine.Transaction) error {
	_, err := t.Tx.ExecContext(ctx, d.sql.Mark)
	return err
}

// VerifyAndStamp releases the savepoint and sets it again: on MariaDB with one statement.
func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if !valid(t.Conn) {
		return engine.ErrUnready
	}
	if d.server.Load().mariaDB {
		err := d.proven(t.Tx.ExecContext(ctx, d.sql.ProofAndMark))
		if number(err) != syntaxError { // for example under sql_mode ORACLE
			return err
		}
	}
	if err := d.Verify(ctx, t); err != nil {
		return err
	}
	return d.Stamp(ctx, t)
}

// Verify releases the savepoint that Stamp set. The savepoint is missing if the claim's transaction has ended.
func (d *DB) Verify(ctx context.Context, t *engine.Transaction) error {
	if !valid(t.Conn) {
		return engine.ErrUnready
	}
	return d.proven(t.Tx.ExecContext(ctx, d.sql.Proof))
}

func (d *DB) proven(_ sql.Result, err error) error {
	if number(err) == noSuchSavepoint {
		return fmt.Errorf("%w: it is not the transaction that claimed: a deadlock rolled it back, DDL or COMMIT committed it, or ROLLBACK ended it; "+
			"return errors of statements instead of swallowing them", dedup.ErrTxEnded)
	}
	return err
}

// Committed checks for the claim's token, because another transaction may have claimed the key after a rollback.
func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (committed bool, err error) {
	err = q.QueryRowContext(ctx, d.sql.Stands, d.Key(c.Witness), hex.EncodeToString(c.Token[:])).Scan(&committed)
	return committed, err
}

// CommittedBefore also accepts a row with another token where duplicates write a new token into the row: it may be the row of
// c.
func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	if d.flushes.Load() {
		return true, nil
	}
	return d.Committed(ctx, tx, c)
}

// LateWritesRollBack reports whether autocommit is still off, as Begin set it.
func (d *DB) LateWritesRollBack(ctx context.Context, t *engine.Transaction) bool {
	var on bool
	err := t.Tx.QueryRowContext(ctx, d.sql.Autocommit).Scan(&on)
	return err == nil && !on && len(t.Claim.Inserted) > 0
}

// InProgress reads uncommitted rows.
func (d *DB) InProgress(ctx context.Context, c *engine.Claim) (bool, error) {
	tx, err := d.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	return d.Committed(ctx, tx, c)
}

func (d *DB) UseWindow(ctx context.Context, db engine.Queryer, w claims.Window) (until time.Time, err error) {
	if _, err := db.ExecContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, storekit.UseFor.Microseconds()); err != nil {
		return until, err
	}
	var t engine.Instant
	err = db.QueryRowContext(ctx, d.sql.WindowUse, w.Consumer, w.Seconds).Scan(&t)
	return t.Time, err
}

// SaveResult does not rely on the count of changed rows: the server does not count a row that already has this result.
func (d *DB) SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (found bool, err error) {
	if err := d.Fits(len(result)); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, d.sql.SaveResult, result, d.Key(k)); err != nil {
		return false, err
	}
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM ("+d.sql.ClaimedOne+") AS found", d.Key(k)).Scan(&found)
	return found, err
}

func (d *DB) HeldKeys(ctx context.Context, _ engine.Run, keys []dedup.KeyHash) ([]bool, error) {
	tx, err := d.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	read := func(query string) (found map[dedup.KeyHash]bool, err error) {
		found = map[dedup.KeyHash]bool{}
		return found, engine.Query(ctx, tx, query, d.Keys(keys)).Each(func(rows engine.Row) error {
			var k engine.KeyHash
			err := rows.Scan(&k)
			found[dedup.KeyHash(k)] = true
			return err
		})
	}
	seen, err := read(d.sql.SeenKeys)
	if err != nil {
		return nil, err
	}
	free, err := read(d.sql.FreeKeys)
	if err != nil {
		return nil, err
	}
	held := make([]bool, len(keys))
	for i, k := range keys {
		held[i] = seen[k] && !free[k]
	}
	return held, nil
}
