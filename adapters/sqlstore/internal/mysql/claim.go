package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// Claim inserts the missing rows, and then reads which rows carry this claim's token: those are the rows that it
// inserted.
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

// insert limits how long the claim waits for a transaction that holds a key. innodb_lock_wait_timeout alone is not
// enough: it counts whole seconds, and starts again for each lock.
func (d *DB) insert(ctx context.Context, c *engine.Claim, server *server, mine engine.Token,
	rows []claims.Row,
) (err error) {
	prefix := server.claimPrefix
	wait, short := driver.ClaimWait(ctx, d.cfg.ClaimTimeout)
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
		query := prefix + d.sql.Claim + strings.Repeat(d.sql.ClaimRow+", ",
			len(part)-1) + d.sql.ClaimRow + d.sql.ClaimAgain
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
		args = append(args, d.Key(row.KeyHash), hex.EncodeToString(mine[:]), max(engine.Micros(rec.Time), 0),
			engine.CeilMicros(rec.Keep()),
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
		if err := found.Scan(&k, &whose, &clock, &c.Server); err != nil {
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

func (d *DB) UseWindow(ctx context.Context, db engine.Queryer, w claims.Window) (until time.Time, err error) {
	if _, err := db.ExecContext(ctx, d.sql.UseWindow, w.Consumer, w.Seconds, driver.UseFor.Microseconds()); err != nil {
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
	var seen, free map[dedup.KeyHash]bool
	err := d.uncommitted(ctx, func(tx *sql.Tx) (err error) {
		if seen, err = d.readKeys(ctx, tx, d.sql.SeenKeys, keys); err == nil {
			free, err = d.readKeys(ctx, tx, d.sql.FreeKeys, keys)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	held := make([]bool, len(keys))
	for i, k := range keys {
		held[i] = seen[k] && !free[k]
	}
	return held, nil
}

func (d *DB) readKeys(ctx context.Context, tx *sql.Tx, query string, keys []dedup.KeyHash) (found map[dedup.KeyHash]bool, err error) {
	found = map[dedup.KeyHash]bool{}
	return found, engine.Query(ctx, tx, query, d.Keys(keys)).Each(func(rows engine.Row) error {
		var k engine.KeyHash
		err := rows.Scan(&k)
		found[dedup.KeyHash(k)] = true
		return err
	})
}
