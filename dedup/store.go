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
	// InTx fails with ErrTxEnded: nothing more of it is written. The error is also ErrRolledBack where the Store knows that
	// neither the claims nor anything that fn wrote through tx was committed. Otherwise, and wherever the Store cannot find out whether
	// fn ended the transaction, the error is an *InDoubtError.
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

// SourceRegistrar remembers where each consumer's messages come from, for all processes that use the database.
type SourceRegistrar interface {
	// RegisterSources records that the messages of consumer come from sources, such as "sqs queue orders". It is refused
	// with ErrNameTaken, and nothing is recorded, where others are recorded for consumer and none of sources is among them:
	// then another service, or another queue, runs under the same name, and each would take the other's messages for
	// duplicates. A source that is added beside one that is known is accepted. Of two processes that register
	// different sources at once, one is refused. It checks what Register checks first, and records nothing where that fails.
	RegisterSources(ctx context.Context, consumer string, sources []string) error
}

// Releaser is a Registrar that gives names back.
type Releaser interface {
	// Release lets another consumer Register under that name on this Store. What is recorded in the database stays. A name that
	// is not registered is not an error.
	Release(consumer string)
}

// ResultStore keeps the answer to a request with its claim.
type ResultStore[TTx any] interface {
	// SaveResult stores result in the row of key, which tx has claimed, for Claim.Result of later duplicates.
	SaveResult(ctx context.Context, tx TTx, key Key, result []byte) error
}

// TxVerifier is for callers that run several handlers in one transaction, one after the other.
type TxVerifier[TTx any] interface {
	// VerifyTx returns nil while tx, which InTx handed to fn, is still the transaction that claimed and can still commit.
	// Call it after a handler returned nil and before the next one runs: any error is the doing of the handler that ran
	// last. It is ErrTxEnded when that handler ended or lost the transaction, so that a later statement would not be
	// part of it. Otherwise InTx would fail too: the handler swallowed the error of a statement, or left rows open.
	// Where the driver knows the answer it costs no round trip.
	VerifyTx(ctx context.Context, tx TTx) error
}

// FaultClassifier tells apart, among the errors that are Retryable, those that one message alone may be to blame for.
type FaultClassifier interface {
	// Ambiguous reports that err is a definite answer of the server to a statement, and that either the database or the
	// handler is at fault: a missing table or column, a refused permission. A
	// consumer pauses while every message meets such an error, and counts it as an attempt of the message that meets it
	// while others commit. It is false for lost connections, failovers, deadlocks, serialisation failures and
	// stale cached plans.
	Ambiguous(err error) bool
}

// KeyProber tells apart the keys that a claim of several has waited for in vain.
type KeyProber interface {
	// HeldKeys reports of each key whether another transaction holds it, so that a claim of it would wait. It waits 50 ms at the
	// most for all of them together; what it cannot tell by then counts as held. It writes nothing that stays. The answer is out of date as
	// soon as it is given, and proves nothing about a key that is not held: claim it to know.
	HeldKeys(ctx context.Context, keys []Key) (held []bool, err error)
}

// Purger forgets expired keys, by the database's clock, in short transactions of its own.
type Purger interface {
	// Purge looks at the next part of the table, forgets what has expired in it, and records the horizon in the same
	// transaction. A crash before its COMMIT forgets nothing.
	Purge(ctx context.Context, by Sweep) (SweepResult, error)
}

// Sweep says who purges, and how much at most.
type Sweep struct {
	Owner string        // differs between any two sweepers, also on one machine
	Lease time.Duration // how long after its last Purge others leave the work to Owner
	Limit int           // rows forgotten at the most

	// Latest is the latest time that the database's clock may show. Beyond it Purge fails with ErrClock, forgets nothing and
	// takes no lease. Zero: any time.
	Latest time.Time
}

// SweepResult is what one Purge did.
type SweepResult struct {
	// Clock is the database's, read before anything was forgotten: what expires later is kept. It is set also where Busy is, and after
	// ErrClock. Zero: the store does not tell.
	Clock time.Time

	Busy bool          // another owner's lease is running: nothing was done
	Keys int           // keys forgotten
	Lag  time.Duration // how long the oldest of them had been expired
	Done bool          // the end of the table was reached; the next Purge starts over
}

// KeyReader is for people. It proves nothing about a COMMIT still in flight: claim again to know.
type KeyReader interface {
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
	ErrRolledBack   = errors.New("nothing was committed") // comes with ErrTxEnded; see Store.InTx
	ErrSchema       = errors.New("dedup: database schema")
	ErrAccess       = errors.New("dedup: database refuses access")
	ErrNotDurable   = errors.New("dedup: database forgets commits")
	ErrClock        = errors.New("dedup: the database's clock is ahead of what it should show")
	ErrNameTaken    = errors.New("dedup: consumer name is already in use on this store")
)

// InDoubtError is an error of InTx after which the claims may be committed without all of fn's work: fn ended the transaction by
// itself, or had means to, and its connection was lost before the Store could look. A new claim that is First proves that nothing
// was committed. One that is a Duplicate proves nothing, unless Committed says that it is not this transaction's.
type InDoubtError struct {
	Err error
	// Committed reports whether the transaction is committed. It asks through tx, which the same Store has handed out in another InTx.
	Committed func(ctx context.Context, tx any) (bool, error)
}

func (e *InDoubtError) Error() string { return e.Err.Error() }
func (e *InDoubtError) Unwrap() error { return e.Err }
