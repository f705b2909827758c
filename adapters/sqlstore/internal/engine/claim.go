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

// Claim describes the claim of one transaction.
type Claim struct {
	claims.Claim

	Tx              *sql.Tx
	Own             bool // the Store began the transaction
	IdleInTxTimeout any  // the limit to set for the transaction; nil: leave the session's limit

	// The engine sets the fields below.
	XID       string
	Standbys  bool          // COMMIT waits for standbys, so the COMMIT of a duplicate must wait too
	Server    string        // see claims.History; empty: no row was read
	Settings  string        // the session's settings before the handler got the transaction
	Token     Token         // the token in the rows that the last claim inserted
	Witness   dedup.KeyHash // the key of one inserted row
	Snapshot  bool          // the transaction reads a snapshot from its start
	Forgotten time.Time     // the latest expiry of the rows deleted so far; zero: no row was deleted
}

// Token is a random value that a claim writes into the rows it inserts.
type Token [8]byte

// ReadInserted reads the inserted keys, each with the database's time.
func (c *Claim) ReadInserted(r Rows) error {
	return r.Each(func(rows Row) error {
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

// ReadForgotten scans the columns into before, and the last column, up to when keys were forgotten, into c.Forgotten.
func (c *Claim) ReadForgotten(row *sql.Row, before ...any) error {
	var forgotten Instant
	err := row.Scan(append(before, &forgotten)...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: the row of table txonce_sweep is missing; undo txonce's migrations and apply them again",
			dedup.ErrSchema)
	}
	c.Forgotten = forgotten.Time
	return err
}

// PingWait limits the ping that checks whether a database that did not answer a claim is still reachable.
const PingWait = time.Second

// Waited explains why a claim of n keys got no answer in time: another transaction holds one of the keys, or the
// database is unreachable.
func Waited(ctx context.Context, cfg *Config, err error, n int) error {
	ctx, cancel := context.WithTimeout(ctx, PingWait)
	defer cancel()
	ping := cfg.DB.PingContext(ctx)
	if stats := cfg.DB.Stats(); ping != nil && (stats.MaxOpenConnections == 0 ||
		stats.InUse < stats.MaxOpenConnections) {
		return Database.Errorf("sqlstore: claim: %w (and the database does not answer: %w)", err, ping)
	}
	return fmt.Errorf("%w: one or several of %d, for more than %v", dedup.ErrInFlight, n, cfg.ClaimTimeout)
}
