package dedup

import (
	"context"
	"errors"
)

// Store keeps claims in the application's own database. TTx is its native transaction. A Store is safe for concurrent
// use; the transactions that it hands out are not.
type Store[TTx any] interface {
	// InTx begins a transaction, claims recs in it, calls fn, and commits. claims[i] answers recs[i]; recs may be
	// empty. First is final only after InTx has returned nil.
	//
	// If fn fails or panics, if ctx ends, or if the server turns COMMIT into a rollback, nothing is left behind. After
	// any other error of COMMIT the outcome is unknown: claim again. A crash before COMMIT leaves nothing, a crash
	// after it leaves the claims and all that fn wrote.
	//
	// A claim waits a limited time for a transaction that holds its key, and then fails with ErrInFlight. That limit
	// does not apply to the statements of fn. fn must not keep tx or claims after it returns.
	//
	// fn must not end the transaction. If it does, InTx writes nothing more and fails with ErrTxEnded. The error is
	// also ErrRolledBack if the Store knows that neither the claims nor any write of fn was committed. Otherwise the
	// error is an *InDoubtError, as it also is when the Store cannot find out whether fn ended the transaction.
	InTx(ctx context.Context, recs []Record, fn func(tx TTx, claims []Claim) error) error

	// Claim claims recs in the caller's own transaction, which the caller commits. After an error the caller must roll
	// back.
	Claim(ctx context.Context, tx TTx, recs []Record) ([]Claim, error)

	// Forget deletes claims as part of tx. A key without a claim is not an error.
	Forget(ctx context.Context, tx TTx, keys ...Key) error

	// Retryable reports whether err is the database's fault and not the message's, so that the same work may succeed
	// later. It is true for lost connections, failovers, serialization failures and missing tables, for example. It is
	// false for ErrInFlight, ErrTxEnded and the handler's own errors.
	Retryable(err error) bool
}

// Errors that callers tell apart with errors.Is.
var (
	ErrInFlight     = errors.New("dedup: another transaction is processing this key")
	ErrNoKey        = errors.New("dedup: message has no business key")
	ErrBadKey       = errors.New("dedup: key refused")
	ErrFuture       = errors.New("dedup: message time refused")
	ErrMismatch     = errors.New("dedup: key was used for other content")
	ErrUnprovable   = errors.New("dedup: the message is so old that its claim may have been deleted")
	ErrKeyCollision = errors.New("dedup: the hash of the key belongs to another business key")
	ErrTxEnded      = errors.New("dedup: the handler ended or lost its transaction")
	ErrRolledBack   = errors.New("nothing was committed") // only together with ErrTxEnded; see Store.InTx
	ErrSchema       = errors.New("dedup: database schema")
	ErrAccess       = errors.New("dedup: database refuses access")
	// txonce cannot work with them: a person must change one
	ErrSettings   = errors.New("dedup: settings of the database, the role or the DSN")
	ErrNotDurable = errors.New("dedup: the database may lose commits")
	ErrClock      = errors.New("dedup: the database's clock is ahead of the expected time")
	ErrNameTaken  = errors.New("dedup: consumer name is already in use on this store")

	// ErrTemporary is an error of TxVerifier.VerifyTx: the transaction can still commit, but must run no further
	// handler.
	ErrTemporary = errors.New("the handler left a temporary table, view or trigger, which may take what the next handler of the transaction writes")

	// ErrClocks says that the clocks of this machine and of the database differ, so that it is unknown whether a
	// message's time or one of the clocks is wrong. It is Retryable: set the clocks.
	ErrClocks = errors.New("dedup: the clocks of this machine and of the database disagree")
)

// InDoubtError is an error of InTx: the claims may be committed without all of fn's work. Either fn ended the
// transaction, or fn could have ended it and the connection was lost before the Store could find out. Claim
// the key again to find out. First proves that nothing was committed. Duplicate proves nothing while Committed is nil
// or returns true: the claim may be that of the transaction in doubt. If Committed returns false, another transaction
// has committed the claim and its effects.
type InDoubtError struct {
	Err error
	// Committed reports whether the transaction is committed. tx is a transaction of a later InTx of the same Store.
	// nil: the Store cannot find out.
	Committed func(ctx context.Context, tx any) (bool, error)
}

func (e *InDoubtError) Error() string { return e.Err.Error() }
func (e *InDoubtError) Unwrap() error { return e.Err }
