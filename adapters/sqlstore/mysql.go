package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// mysql is the database of dialect.MySQL.
type mysql struct {
	plain   dialect.MySQL // without the schema that locate finds, which may be finding it: only what names no table is sent from here
	sql     dialect.MySQL
	box     dialect.MySQLOutbox
	shared  statements
	cfg     Config
	spare   spare
	server  atomic.Pointer[mysqlServer] // nil: not asked yet
	flushes atomic.Bool                 // a duplicate must write, see dialect.MySQL.Touch
	packet  atomic.Int64                // max_allowed_packet; 0: not known yet
	shards  atomic.Int64                // see shardsIn; 0: not known yet
}

func newMySQL(cfg Config) (database, error) {
	d := &mysql{cfg: cfg, plain: dialect.NewMySQL("")}
	d.name(cfg.Schema)
	var err error
	d.spare, err = newSpare(cfg)
	return d, err
}

func (d *mysql) locate(ctx context.Context, q queryer) (schema string, err error) {
	err = q.QueryRowContext(ctx, d.plain.Locate).Scan(&schema)
	return schema, err
}

func (d *mysql) name(schema string) {
	q := dialect.NewMySQL(schema)
	d.sql, d.box = q, dialect.NewMySQLOutbox(schema)
	d.shared = statements{
		Existing: q.Existing, Forgotten: q.Forgotten, Windows: q.Windows, Forget: q.Forget, SaveResult: q.SaveResult, Lookup: q.Lookup,
		LockSources: q.LockSources, Sources: q.Sources, AddSource: q.AddSource,
		UseWindow: q.UseWindow, SchemaVersion: q.SchemaVersion, SchemaTables: q.SchemaTables, Park: q.Park, Take: q.Take, Letters: q.Letters,
	}
}

func (d *mysql) statements() *statements { return &d.shared }

func (d *mysql) enter(ctx context.Context) (func(), error) { return d.spare.enter(ctx) }

func (d *mysql) patiently(_ context.Context, f func() error) error { return f() }

// begin begins a transaction on a session of its own settings: without autocommit, so that what a handler writes after its
// transaction has vanished begins another one, which prove finds out, instead of standing at once.
func (d *mysql) begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error) {
	server, err := d.describe(ctx, conn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, server.enter[level]); err != nil {
		discard(conn)
		return nil, err
	}
	tx, err := conn.BeginTx(end, nil) // the session has the level
	if err != nil {
		discard(conn)
	}
	return tx, err
}

// commit sends COMMIT as a statement, because the driver's own has no limit: it would wait for ever for a server that has
// stopped answering. The ROLLBACK that ends tx for database/sql finds nothing to do then.
func (d *mysql) commit(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `COMMIT`)
	return err
}

// restore gives a connection back as it was. To set autocommit commits what is open, so that one which is not known to have
// ended its transaction is closed instead, and one whose session has other settings than before too.
func (d *mysql) restore(ctx context.Context, t *session) {
	if t.ended && !t.spoilt {
		if _, err := t.conn.ExecContext(ctx, d.server.Load().leave); err == nil {
			return
		}
	}
	discard(t.conn)
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

// discard closes a connection instead of giving it back.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

// token is what a claim writes into the rows that it inserts.
type token [8]byte

// claim inserts what is not there, and reads which rows carry its own token: those it inserted.
func (d *mysql) claim(ctx context.Context, c *claim, rows []claims.Row) error {
	server, err := d.describe(ctx, c.tx)
	if err != nil {
		return err
	}
	var mine token
	rand.Read(mine[:]) // never fails
	if err := d.insert(ctx, c, server, mine, rows); err != nil {
		return err
	}
	if err := d.readClaimed(ctx, c, mine, rows); err != nil {
		return err
	}
	// Who began the transaction knows whether its snapshot may be older than the claim; no statement tells without rights.
	c.snapshot = !c.own || d.cfg.Isolation > sql.LevelReadCommitted
	if c.snapshot || !c.Old() {
		return nil
	}
	return c.readForgotten(c.tx.QueryRowContext(ctx, d.sql.Forgotten))
}

// insert bounds the wait for a transaction that holds a key. innodb_lock_wait_timeout counts per lock, and in seconds.
func (d *mysql) insert(ctx context.Context, c *claim, server *mysqlServer, mine token, rows []claims.Row) (err error) {
	prefix := server.claimPrefix
	_, short := dedup.ClaimWait(ctx, d.cfg.InFlightWait)
	switch {
	case server.mariaDB && short:
		prefix = mariaDBNoWait
	case !server.mariaDB:
		seconds := int64(math.Ceil(d.cfg.InFlightWait.Seconds()))
		if short {
			seconds = 1
		}
		if _, err := c.tx.ExecContext(ctx, d.sql.LimitWait+fmt.Sprint(seconds)); err != nil {
			return err
		}
		defer func() {
			if _, restore := c.tx.ExecContext(ctx, d.sql.RestoreWait); err == nil {
				err = restore
			}
		}()
	}
	limited, cancel := context.WithTimeout(ctx, d.batchWait(len(rows)))
	defer cancel()
	for part := range slices.Chunk(rows, mysqlRows) {
		query := prefix + d.sql.Claim + strings.Repeat(d.sql.ClaimRow+", ", len(part)-1) + d.sql.ClaimRow + d.sql.ClaimAgain
		if _, err := c.tx.ExecContext(limited, query, d.values(part, mine)...); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return waited(ctx, d.cfg, err, len(rows))
			}
			return err
		}
	}
	return nil
}

// mariaDBNoWait is before a claim that waits for a shorter time than a second.
const mariaDBNoWait = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "

// batchWait is longer than what the server itself allows a single wait.
func (d *mysql) batchWait(rows int) time.Duration {
	if rows == 1 {
		return d.cfg.InFlightWait + answerWithin
	}
	wait := max(d.cfg.InFlightWait, time.Second)
	return wait + wait/4
}

// mysqlRows is how many rows one statement claims: a statement takes 65,535 parameters.
const mysqlRows = 1000

func (d *mysql) values(rows []claims.Row, mine token) []any {
	args := make([]any, 0, 8*len(rows))
	for _, row := range rows {
		rec := row.Record
		var consumer, tenant, id any
		if !d.cfg.Compact {
			consumer, tenant, id = rec.Key.Consumer, nullable(rec.Key.Tenant), rec.Key.ID
		}
		args = append(args, d.key(row.Derived), hex.EncodeToString(mine[:]), max(micros(rec.Time), 0), ceilMicros(rec.Keep()),
			fingerprint(rec.Fingerprint), consumer, tenant, id)
	}
	return args
}

func (d *mysql) readClaimed(ctx context.Context, c *claim, mine token, rows []claims.Row) error {
	query, arg := d.sql.ClaimedOne, d.key(rows[0].Derived)
	if len(rows) > 1 {
		keys := make([]dedup.Derived, len(rows))
		for i, row := range rows {
			keys[i] = row.Derived
		}
		query, arg = d.sql.Claimed, d.keys(keys)
	}
	found, err := c.tx.QueryContext(ctx, query, arg)
	return each(found, err, func(found *sql.Rows) error {
		var k derived
		var whose []byte
		var clock instant
		if err := found.Scan(&k, &whose, &clock); err != nil {
			return err
		}
		if string(whose) == string(mine[:]) {
			c.Inserted[dedup.Derived(k)] = true
			c.token, c.witness = mine, dedup.Derived(k)
			c.Clock = clock.Time
		}
		return nil
	})
}

func (d *mysql) flush(ctx context.Context, c *claim) error {
	if !d.flushes.Load() {
		return nil
	}
	var known []dedup.Derived
	for _, row := range c.Plan.Rows {
		if !c.Inserted[row.Derived] {
			known = append(known, row.Derived)
		}
	}
	var other token
	rand.Read(other[:])
	_, err := c.tx.ExecContext(ctx, d.sql.Touch, d.keys(known), hex.EncodeToString(other[:]))
	return err
}

func (d *mysql) mark(ctx context.Context, t *session) error {
	_, err := t.tx.ExecContext(ctx, d.sql.Mark)
	return err
}

// errUnready says that the driver takes no statement: the handler left rows open, or the connection is lost.
var errUnready = errors.New("the connection takes no statement")

// verify releases the savepoint and sets it again, on MariaDB in one statement.
func (d *mysql) verify(ctx context.Context, t *session) error {
	if !valid(t.conn) {
		return errUnready
	}
	if d.server.Load().mariaDB {
		err := d.proven(t.tx.ExecContext(ctx, d.sql.ProofAndMark))
		if mysqlNumber(err) != syntaxError { // as with sql_mode ORACLE
			return err
		}
	}
	if err := d.prove(ctx, t); err != nil {
		return err
	}
	return d.mark(ctx, t)
}

// prove releases the savepoint of mark: where the transaction is another one or none, there is no such savepoint.
func (d *mysql) prove(ctx context.Context, t *session) error {
	if !valid(t.conn) {
		return errUnready
	}
	return d.proven(t.tx.ExecContext(ctx, d.sql.Proof))
}

func (d *mysql) proven(_ sql.Result, err error) error {
	if mysqlNumber(err) == noSuchSavepoint {
		return fmt.Errorf("%w: it is not the transaction that claimed: a deadlock rolled it back, DDL or COMMIT committed it, or ROLLBACK ended it; "+
			"return errors of statements instead of swallowing them", dedup.ErrTxEnded)
	}
	return err
}

// stands asks for the claim's token: another transaction may have claimed the key since a rollback.
func (d *mysql) stands(ctx context.Context, q queryer, c *claim) (stands bool, err error) {
	err = q.QueryRowContext(ctx, d.sql.Stands, d.key(c.witness), hex.EncodeToString(c.token[:])).Scan(&stands)
	return stands, err
}

// committed: where a duplicate renews the token of its row, a row with another token may still be the one of c.
func (d *mysql) committed(ctx context.Context, tx *sql.Tx, c *claim) (bool, error) {
	if d.flushes.Load() {
		return true, nil
	}
	return d.stands(ctx, tx, c)
}

// writesEnd: begin has switched autocommit off, and the handler has not switched it on.
func (d *mysql) writesEnd(ctx context.Context, t *session) bool {
	var on bool
	err := t.tx.QueryRowContext(ctx, d.sql.Autocommit).Scan(&on)
	return err == nil && !on && len(t.claim.Inserted) > 0
}

// inProgress also sees what is not committed.
func (d *mysql) inProgress(ctx context.Context, c *claim) (bool, error) {
	tx, err := d.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	return d.stands(ctx, tx, c)
}

func (d *mysql) useWindow(ctx context.Context, db queryer, w claims.Window) (until time.Time, err error) {
	if _, err := db.ExecContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, dedup.UseFor.Microseconds()); err != nil {
		return until, err
	}
	var t instant
	err = db.QueryRowContext(ctx, d.sql.WindowUse, w.Consumer, w.Seconds).Scan(&t)
	return t.Time, err
}

// useWindowsWithin registers on another connection, because a registration must not roll back with tx.
func (d *mysql) useWindowsWithin(ctx context.Context, s *Store, _ *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error) {
	return nil, s.useElsewhere(ctx, due)
}

// saveResult does not trust the number of rows: one that has this result already is not counted as changed.
func (d *mysql) saveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (found bool, err error) {
	if err := d.fits(len(result)); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, d.sql.SaveResult, result, d.key(k)); err != nil {
		return false, err
	}
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM ("+d.sql.ClaimedOne+") AS found", d.key(k)).Scan(&found)
	return found, err
}
