package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Adapted is a Store whose transactions have type TTx, such as *gorm.DB or bun.Tx. Handlers get a TTx around the
// transaction that claimed. The other methods are those of the Store: both share consumer names and the outbox. It is
// safe for concurrent use.
//
// If a handler ends its transaction through TTx, this is detected as on the Store; see the package comment.
type Adapted[TTx any] struct {
	*Store
	wrap   func(ctx context.Context, tx *sql.Tx) (TTx, error)
	unwrap func(tx TTx) *sql.Tx
}

var (
	_ dedup.Store[*sql.Conn]                = (*Adapted[*sql.Conn])(nil) // an example of a type other than *sql.Tx
	_ driver.ResultStore[*sql.Conn]         = (*Adapted[*sql.Conn])(nil)
	_ driver.Versioner[*sql.Conn]           = (*Adapted[*sql.Conn])(nil)
	_ driver.Registrar                      = (*Adapted[*sql.Conn])(nil)
	_ driver.TxVerifier[*sql.Conn]          = (*Adapted[*sql.Conn])(nil)
	_ driver.FaultClassifier                = (*Adapted[*sql.Conn])(nil)
	_ dedup.Archiver                        = (*Adapted[*sql.Conn])(nil)
	_ driver.CallStore[*sql.Conn]           = (*Adapted[*sql.Conn])(nil)
	_ driver.KeyReader                      = (*Adapted[*sql.Conn])(nil)
	_ consumerdriver.ReplayQueue[*sql.Conn] = (*Adapted[*sql.Conn])(nil)
	_ outbox.Writer[*sql.Conn]              = (*Adapted[*sql.Conn])(nil)
	_ outboxdriver.Queue                    = (*Adapted[*sql.Conn])(nil)
)

// Adapt returns a store whose transactions have type TTx.
//
// InTx calls wrap, which returns a TTx that runs its statements in tx. wrap must not begin a transaction of its own.
// Its errors are Retryable, because they say nothing about the message. ctx is the context of InTx.
//
// unwrap returns the transaction that runs the statements of a TTx, or nil if there is none, as for a *gorm.DB outside
// of a transaction. A nil transaction is refused: its statements would stay even if the handler's transaction rolls
// back.
func Adapt[TTx any](s *Store, wrap func(ctx context.Context, tx *sql.Tx) (TTx, error),
	unwrap func(tx TTx) *sql.Tx,
) (*Adapted[TTx], error) {
	switch {
	case s == nil:
		return nil, errors.New("sqlstore: Adapt: a Store is required")
	case wrap == nil:
		return nil, errors.New("sqlstore: Adapt: wrap is required")
	case unwrap == nil:
		return nil, errors.New("sqlstore: Adapt: unwrap is required")
	}
	return &Adapted[TTx]{s, wrap, unwrap}, nil
}

// InTx implements dedup.Store.
func (l *Adapted[TTx]) InTx(ctx context.Context, recs []dedup.Record,
	fn func(tx TTx, answers []dedup.Claim) error,
) error {
	return l.Store.InTx(ctx, recs, func(tx *sql.Tx, answers []dedup.Claim) error {
		adapted, err := l.wrap(ctx, tx)
		if err != nil {
			return engine.Database.Errorf("sqlstore: adapt a transaction: %w", err)
		}
		if l.unwrap(adapted) != tx { // the handler would write outside of the claim's transaction
			return engine.Database.Errorf("sqlstore: adapt a transaction: unwrap of the %T that wrap returned is not the transaction that wrap got", adapted)
		}
		return fn(adapted, answers)
	})
}

// Claim implements dedup.Store.
func (l *Adapted[TTx]) Claim(ctx context.Context, tx TTx, recs []dedup.Record) (answers []dedup.Claim, err error) {
	err = l.in(tx, func(tx *sql.Tx) (err error) {
		answers, err = l.Store.Claim(ctx, tx, recs)
		return err
	})
	return answers, err
}

// Forget implements dedup.Store.
func (l *Adapted[TTx]) Forget(ctx context.Context, tx TTx, keys ...dedup.Key) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.Forget(ctx, tx, keys...) })
}

// SaveResult implements driver.ResultStore.
func (l *Adapted[TTx]) SaveResult(ctx context.Context, tx TTx, key dedup.Key, result []byte) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.SaveResult(ctx, tx, key, result) })
}

// Newer implements driver.Versioner; see Store.Newer.
func (l *Adapted[TTx]) Newer(ctx context.Context, tx TTx, object string, version int64) (newer bool, err error) {
	err = l.in(tx, func(tx *sql.Tx) (err error) {
		newer, err = l.Store.Newer(ctx, tx, object, version)
		return err
	})
	return newer, err
}

// Calls implements driver.CallStore.
func (l *Adapted[TTx]) Calls() driver.CallKeeper[TTx] {
	return adaptedCalls[TTx]{callKeeper{l.operator(), l.Store}, l.in}
}

// VerifyTx implements driver.TxVerifier.
func (l *Adapted[TTx]) VerifyTx(ctx context.Context, tx TTx) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.VerifyTx(ctx, tx) })
}

// Park implements driver.ParkingLot.
func (l *Adapted[TTx]) Park(ctx context.Context, tx TTx, letter consumer.DeadLetter) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.Park(ctx, tx, letter) })
}

// TakeDeadLetter implements driver.ParkingLot.
func (l *Adapted[TTx]) TakeDeadLetter(ctx context.Context, tx TTx, letter consumer.DeadLetter) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.TakeDeadLetter(ctx, tx, letter) })
}

// SettleReplay implements driver.ReplayQueue.
func (l *Adapted[TTx]) SettleReplay(ctx context.Context, tx TTx, action [16]byte, letter consumer.DeadLetter,
	outcome observe.Outcome,
) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.SettleReplay(ctx, tx, action, letter, outcome) })
}

// Enqueue implements outbox.Writer; see Store.Enqueue.
func (l *Adapted[TTx]) Enqueue(ctx context.Context, tx TTx, msgs ...outbox.Message) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.Enqueue(ctx, tx, msgs...) })
}

// LockOrderingKey calls Store.LockOrderingKey.
func (l *Adapted[TTx]) LockOrderingKey(ctx context.Context, tx TTx, key string) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.LockOrderingKey(ctx, tx, key) })
}

// LockKeys calls Store.LockKeys.
func (l *Adapted[TTx]) LockKeys(ctx context.Context, tx TTx, keys ...dedup.Key) error {
	return l.in(tx, func(tx *sql.Tx) error { return l.Store.LockKeys(ctx, tx, keys...) })
}

// in runs f in the transaction of adapted.
func (l *Adapted[TTx]) in(adapted TTx, f func(tx *sql.Tx) error) error {
	tx := l.unwrap(adapted)
	if tx == nil {
		return fmt.Errorf("sqlstore: unwrap found no *sql.Tx in this %T: pass the one that the handler got, or one with an open transaction", adapted)
	}
	return f(tx)
}
