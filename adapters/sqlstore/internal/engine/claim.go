package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Claim is the claim of one transaction.
type Claim struct {
	claims.Claim

	Tx              *sql.Tx
	Own             bool // the transaction is the Store's
	IdleInTxTimeout any  // of the transaction; nil: the caller's own is left alone

	// The engine fills in these.
	XID       string
	Standbys  bool          // COMMIT waits for others, and so must a duplicate
	Settings  string        // of the session, before a handler had it
	Token     Token         // of the rows that were inserted last
	Witness   dedup.KeyHash // one of these
	Snapshot  bool          // the transaction sees the database as it was at its beginning
	Forgotten time.Time     // all rows forgotten so far had expired by then; zero: none was
}

// Token is what a claim writes into the rows that it inserts.
type Token [8]byte

// ReadInserted reads the keys that a claim has inserted, and the clock after each.
func (c *Claim) ReadInserted(r Rows) error {
	return r.Each(func(rows *sql.Rows) error {
		var k KeyHash
		var clock Instant
		if err := rows.Scan(&k, &clock); err != nil {
			return err
		}
		c.Inserted[dedup.KeyHash(k)] = true
		if clock.After(c.Clock) {
			c.Clock = clock.Time
		}
		return nil
	})
}

// ReadForgotten reads until when keys were forgotten, behind the columns of before.
func (c *Claim) ReadForgotten(row *sql.Row, before ...any) error {
	var forgotten Instant
	err := row.Scan(append(before, &forgotten)...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: the row of table txonce_sweep is missing; undo txonce's migrations and apply them again", dedup.ErrSchema)
	}
	c.Forgotten = forgotten.Time
	return err
}

// PingWait bounds the question whether a database that lets a claim wait answers at all.
const PingWait = time.Second

// Waited says why n keys got no answer in time: another transaction holds one of them, or the database is away.
func Waited(ctx context.Context, cfg *Config, err error, n int) error {
	ctx, cancel := context.WithTimeout(ctx, PingWait)
	defer cancel()
	ping := cfg.DB.PingContext(ctx)
	if stats := cfg.DB.Stats(); ping != nil && (stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections) {
		return Database.Errorf("sqlstore: claim: %w (and the database does not answer: %w)", err, ping)
	}
	return fmt.Errorf("%w: one or several of %d, for more than %v", dedup.ErrInFlight, n, cfg.ClaimTimeout)
}
