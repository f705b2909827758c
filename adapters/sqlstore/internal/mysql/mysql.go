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

// DB is the engine of dialect.MySQL.
type DB struct {
	Plain   dialect.MySQL // without the schema that locate finds, which may be finding it: only what names no table is sent from here
	sql     dialect.MySQL
	box     dialect.MySQLOutbox
	shared  engine.Statements
	cfg     engine.Config
	spare   engine.Spare
	server  atomic.Pointer[server] // nil: not asked yet
	flushes atomic.Bool            // a duplicate must write, see dialect.MySQL.Touch
	packet  atomic.Int64           // max_allowed_packet; 0: not known yet
	shards  atomic.Int64           // see shardsIn; 0: not known yet
}

// New returns the engine for MySQL and MariaDB.
func New(cfg engine.Config) (engine.Engine, error) {
	spare, err := engine.NewSpare(&cfg)
	d := &DB{cfg: cfg, Plain: dialect.NewMySQL(""), spare: spare}
	d.Name(cfg.Schema)
	return engine.Engine{
		Tables: d, Transactions: d, Claims: d, Proofs: d, Errors: d, Values: d, KeyProber: d,
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
	}
}

func (d *DB) Statements() *engine.Statements { return &d.shared }

func (d *DB) Enter(ctx context.Context) (func(), error) { return d.spare.Enter(ctx) }

func (d *DB) RetryBusy(_ context.Context, f func() error) error { return f() }

// Begin begins a transaction on a session of its own settings: without autocommit, so that what a handler writes after its
// transaction has vanished begins another one, which Verify detects, instead of being committed at once.
func (d *DB) Begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error) {
	server, err := d.describe(ctx, conn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, server.enter[level]); err != nil {
		engine.Discard(conn)
		return nil, err
	}
	tx, err := conn.BeginTx(end, nil) // the session has the level
	if err != nil {
		engine.Discard(conn)
	}
	return tx, err
}

// Commit sends COMMIT as a statement, because the driver's own has no limit: it would wait for ever for a server that has
// stopped answering. The ROLLBACK that ends tx for database/sql finds nothing to do then.
func (d *DB) Commit(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `COMMIT`)
	return err
}

// Restore gives a connection back as it was. To set autocommit commits what is open, so that one which is not known to have
// ended its transaction is closed instead, and one whose session has other settings than before too.
func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Ended && !t.Spoilt {
		if _, err := t.Conn.ExecContext(ctx, d.server.Load().leave); err == nil {
			return
		}
	}
	engine.Discard(t.Conn)
}

// valid asks the driver, before a statement is sent that would make open rows look like a lost connection.
func valid(conn *sql.Conn) (yes bool) {
	err := conn.Raw(func(c any) error {
		v, asks := c.(driver.Validator)
		yes = !asks || v.IsValid()
		return nil
	})
	return yes && err == nil
}

// Claim inserts what is not there, and reads which rows carry its own token: those it inserted.
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
	// Who began the transaction knows whether its snapshot may be older than the claim; no statement tells without rights.
	c.Snapshot = !c.Own || d.cfg.Isolation > sql.LevelReadCommitted
	if c.Snapshot || !c.Old() {
		return nil
	}
	return c.ReadForgotten(c.Tx.QueryRowContext(ctx, d.sql.Forgotten))
}

// insert bounds the wait for a transaction that holds a key. innodb_lock_wait_timeout counts per lock, and in seconds.
func (d *DB) insert(ctx context.Context, c *engine.Claim, server *server, mine engine.Token, rows []claims.Row) (err error) {
	prefix := server.claimPrefix
	_, short := dedup.ClaimWait(ctx, d.cfg.ClaimTimeout)
	switch {
	case server.mariaDB && short:
		prefix = mariaDBNoWait
	case !server.mariaDB:
		seconds := int64(math.Ceil(d.cfg.ClaimTimeout.Seconds()))
		if short {
			seconds = 1
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

// mariaDBNoWait is before a claim that waits for a shorter time than a second.
const mariaDBNoWait = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "

// batchWait is longer than what the server itself allows a single wait.
func (d *DB) batchWait(rows int) time.Duration {
	if rows == 1 {
		return d.cfg.ClaimTimeout + engine.AnswerWithin
	}
	wait := max(d.cfg.ClaimTimeout, time.Second)
	return wait + wait/4
}

// mysqlRows is how many rows one statement claims: a statement takes 65,535 parameters.
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
	return engine.Query(ctx, c.Tx, query, arg).Each(func(found *sql.Rows) error {
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

// VerifyAndStamp releases the savepoint and sets it again, on MariaDB in one statement.
func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if !valid(t.Conn) {
		return engine.ErrUnready
	}
	if d.server.Load().mariaDB {
		err := d.proven(t.Tx.ExecContext(ctx, d.sql.ProofAndMark))
		if number(err) != syntaxError { // as with sql_mode ORACLE
			return err
		}
	}
	if err := d.Verify(ctx, t); err != nil {
		return err
	}
	return d.Stamp(ctx, t)
}

// Verify releases the savepoint of Stamp: where the transaction is another one or none, there is no such savepoint.
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

// Committed asks for the claim's token: another transaction may have claimed the key since a rollback.
func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (stands bool, err error) {
	err = q.QueryRowContext(ctx, d.sql.Stands, d.Key(c.Witness), hex.EncodeToString(c.Token[:])).Scan(&stands)
	return stands, err
}

// CommittedBefore: where a duplicate renews the token of its row, a row with another token may still be the one of c.
func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	if d.flushes.Load() {
		return true, nil
	}
	return d.Committed(ctx, tx, c)
}

// LateWritesRollBack: begin has switched autocommit off, and the handler has not switched it on.
func (d *DB) LateWritesRollBack(ctx context.Context, t *engine.Transaction) bool {
	var on bool
	err := t.Tx.QueryRowContext(ctx, d.sql.Autocommit).Scan(&on)
	return err == nil && !on && len(t.Claim.Inserted) > 0
}

// InProgress also sees what is not committed.
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

// SaveResult does not trust the number of rows: one that has this result already is not counted as changed.
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
		return found, engine.Query(ctx, tx, query, d.Keys(keys)).Each(func(rows *sql.Rows) error {
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
