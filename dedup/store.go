package dedup

import (
	"context"
	"errors"
	"time"
)

// Store keeps claims in the application's own database. TTx is its native transaction.
// It is safe for concurrent use; a transaction it hands out is not.
type Store[TTx any] interface {
	// InTx begins a transaction, claims recs in it (none if empty), calls fn and commits.
	// claims[i] answers recs[i]. An error or panic of fn, an ended ctx, or a COMMIT that the server turned into a
	// rollback leaves nothing behind. After any other error of COMMIT the outcome is unknown: claim again.
	//
	// A claim waits a bounded time for a transaction that holds its key, then fails with ErrInFlight; fn's own
	// statements keep the session's settings. fn must not keep tx or claims. Where fn ends the transaction by itself
	// InTx fails with ErrTxEnded: nothing more of it is written.
	//
	// First is final only once InTx has returned nil.
	InTx(ctx context.Context, recs []Record, fn func(tx TTx, claims []Claim) error) error

	// Claim claims recs in a transaction of the caller's, whose COMMIT decides. After an error the caller rolls back.
	Claim(ctx context.Context, tx TTx, recs []Record) ([]Claim, error)

	// Forget takes claims back, as part of tx. A key without a claim is not an error.
	Forget(ctx context.Context, tx TTx, keys ...Key) error

	// Retryable reports that err is the database's fault, not the message's: the same work may succeed later.
	// It is true for lost connections, failovers, serialisation failures, missing tables and their like, and false
	// for ErrInFlight, ErrTxEnded and whatever a handler says of its own accord.
	Retryable(err error) bool
}

// The rest a Store may do; found by type assertion, so that a Store never has to grow.

// Registrar checks at start what would otherwise fail later or, worse, not fail.
type Registrar interface {
	// Register refuses a missing or outdated schema (ErrSchema) and settings that forget commits (ErrNotDurable), and
	// records that consumer runs with window from now on. A Store registers by itself what it claims; this is for
	// saying so at start. A user or database that the server refuses is ErrAccess; what passes by itself is Retryable and
	// none of these. The second Register of one consumer on one Store is refused with ErrNameTaken: two
	// consumers under one name take each other's messages for duplicates. Two nodes are two Stores.
	Register(ctx context.Context, consumer string, window time.Duration) error
}

// ResultStore keeps the answer to a request with its claim.
type ResultStore[TTx any] interface {
	// SaveResult stores result in the row of key, which tx has claimed, for Claim.Result of later duplicates.
	SaveResult(ctx context.Context, tx TTx, key Key, result []byte) error
}

// Purger forgets expired keys, by the database's clock, in short transactions of its own.
type Purger interface {
	// Purge looks at the next part of the table, forgets what has expired in it, and records the horizon in the same
	// transaction. A crash before its COMMIT forgets nothing.
	Purge(ctx context.Context, by Sweep) (Swept, error)
}

// Sweep says who purges, and how much at most.
type Sweep struct {
	Owner string        // differs between any two sweepers, also on one machine
	Lease time.Duration // how long after its last Purge others leave the work to Owner
	Limit int           // rows forgotten at the most
}

// Swept is what one Purge did.
type Swept struct {
	Busy bool          // another owner's lease is running: nothing was done
	Keys int           // keys forgotten
	Lag  time.Duration // how long the oldest of them had been expired
	Done bool          // the end of the table was reached; the next Purge starts over
}

// Lookuper is for people. It proves nothing about a COMMIT still in flight: claim again to know.
type Lookuper interface {
	Lookup(ctx context.Context, key Key) (c Claim, found bool, err error)
}

// Errors that callers tell apart with errors.Is.
var (
	ErrInFlight     = errors.New("dedup: another transaction is processing this key")
	ErrNoKey        = errors.New("dedup: message has no natural key")
	ErrBadKey       = errors.New("dedup: key refused")
	ErrFuture       = errors.New("dedup: message time refused")
	ErrMismatch     = errors.New("dedup: key was used for other content")
	ErrUnprovable   = errors.New("dedup: message is older than what was forgotten")
	ErrKeyCollision = errors.New("dedup: derived key belongs to another natural key")
	ErrTxEnded      = errors.New("dedup: the handler ended or lost its transaction")
	ErrSchema       = errors.New("dedup: database schema")
	ErrAccess       = errors.New("dedup: database refuses access")
	ErrNotDurable   = errors.New("dedup: database forgets commits")
	ErrNameTaken    = errors.New("dedup: consumer name is already in use on this store")
)
