package driver

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
)

// A Store may implement the following interfaces. Callers find them by type assertion, so that Store never has to grow.
// All are safe for concurrent use. A Store that wraps another one must embed its type, or pass each interface on: what
// it does not have is lost without an error, except where consumer.New refuses the Store.

// Registrar knows the names of consumers. It checks at start what would otherwise fail later or lose messages.
//
// Without it a missing schema, settings that lose commits and a refused user appear with the first message, and not at
// start. Two consumers with one name, in one program or in two services, take each other's messages for duplicates, and
// nothing notices it.
type Registrar interface {
	// Register records that consumer runs with window from now on. It refuses a missing or outdated schema
	// (dedup.ErrSchema), settings that lose commits (dedup.ErrNotDurable) or break statements (dedup.ErrSettings), and
	// a user or database that the server refuses (dedup.ErrAccess). A temporary error is Retryable and is none of these
	// four. A Store registers each window that it claims with by itself; Register makes the errors appear at start.
	//
	// The second Register of a consumer on one Store fails with dedup.ErrNameTaken, because two consumers with one name
	// take each other's messages for duplicates. Two processes have two Stores, so both may register. A
	// consumer.Consumer calls Register by itself: call it only for a name that no Consumer has, such as that of an
	// httpidem.Config, or a program that calls InTx.
	Register(ctx context.Context, consumer string, window time.Duration) error

	// RegisterSources records, for all processes that use the database, that the messages of consumer come from
	// sources, such as "sqs queue orders". It fails with dedup.ErrNameTaken, and records nothing, if other sources are
	// recorded for consumer and none of sources is among them: then another service or another queue uses the name, and
	// each would take the other's messages for duplicates. A new source next to a known one is accepted. If two
	// processes register different sources at the same time, one of them fails.
	//
	// RegisterSources first makes the checks of Register, and records nothing if one of them fails.
	RegisterSources(ctx context.Context, consumer string, sources []string) error

	// Release lets another consumer Register with the name on this Store. The database's records stay. A name that is
	// not registered is not an error.
	Release(consumer string)

	// NameFree returns an error that is dedup.ErrNameTaken if the program has called Register with the name, and so a
	// Consumer cannot have it. It returns nil if the name is free, and also if a Consumer has it, which may be closed
	// before the next one starts. It does not use the database.
	NameFree(consumer string) error
}

// TxVerifier is for callers that run several handlers in one transaction, one after the other.
//
// Without it a handler that ends the transaction is noticed after the handlers that follow in its batch, whose work is
// then outside of any transaction, and all of them are in doubt. consumer.New refuses a Store without it, unless
// Config.TrustHandlers is set.
type TxVerifier[TTx any] interface {
	// VerifyTx returns nil if tx, which InTx passed to fn, is still the transaction that holds the claims and can still
	// commit. Call it after a handler has returned nil and before the next one runs, so that an error is the fault of
	// the handler that ran last. The error is dedup.ErrTxEnded if that handler ended or lost the transaction. It is
	// dedup.ErrTemporary if tx can still commit, but must run no further handler. Any other error means that InTx would
	// fail too, because the handler ignored an error of a statement or left rows open, for example.
	//
	// It costs no round trip if the driver knows the answer.
	VerifyTx(ctx context.Context, tx TTx) error
}

// Interleaver runs several handlers at the same time in one transaction, and sends statements of different handlers
// to the database together.
//
// Without it consumer.New refuses Config.Interleave.
type Interleaver[TTx any] interface {
	// Interleave calls each of handlers on a goroutine of its own, and returns when all have returned. tx is the
	// transaction that InTx passed to fn. Each handler gets a transaction of its own that works in tx, and must not use
	// it after it has returned. keys has an element for each handler: those with the same key, except "", run one after
	// the other in their order.
	//
	// If all handlers return nil and Interleave returns no error, the caller may return nil to InTx, and all their
	// effects are committed. Otherwise it must return an error to InTx, and nothing is committed. failed is then the
	// place of the handler that failed first, or -1 if no handler can be named, and err is its error. After the first
	// failure Interleave ends the ctx of the other handlers, and waits for them. What they return then is dropped.
	// Interleave also fails if a handler calls runtime.Goexit, or if handlers could wait for each other forever. A
	// handler that fails here may succeed when it runs without others. Handlers must not panic.
	//
	// If err is dedup.ErrTxEnded, the handler at failed has ended the transaction, and may have committed it. All
	// earlier handlers had returned before, and their work was complete in the transaction. Of the later ones, only a
	// part of the work may be in it, even if they had returned.
	//
	// The handlers are not kept apart by row locks, because a transaction does not wait for itself. A handler that asks
	// for a lock has tx for itself from then on until it returns. Locks, settings and sequence numbers in functions of
	// the database are not seen: a handler that uses them asks for a lock first.
	Interleave(ctx context.Context, tx TTx, keys []string, handlers []func(ctx context.Context,
		tx TTx) error) (failed int, err error)
}

// KeyProber finds out which keys made a claim fail with dedup.ErrInFlight.
//
// Without it a batch that meets a held key is tried in halves, and each half waits for the key again.
type KeyProber interface {
	// HeldKeys reports for each key whether another transaction holds it, so that a claim would wait. It takes 50 ms at
	// most for all keys together; a key that it could not check by then counts as held. It leaves nothing in the
	// database. The answer may be outdated at once and proves nothing about a key that is not held: claim it to know.
	HeldKeys(ctx context.Context, keys []dedup.Key) (held []bool, err error)
}

// PoolReporter knows how much of the Store's connection pool is in use.
//
// Without it the log line about a handler that runs for more than a minute does not say that the pool is used up.
type PoolReporter interface {
	// PoolUse returns how many connections of the pool are in use, and the limit; 0: no limit. At the limit, the next
	// caller waits: a handler that uses the pool instead of its transaction may then wait forever. PoolUse does not use
	// the database.
	PoolUse() (inUse, most int)
}
