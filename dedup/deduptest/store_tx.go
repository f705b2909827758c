package deduptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// Tx is a transaction of a Database, and the TTx of a Store. Its writes become visible when it commits.
//
// An error of a method aborts it, as in PostgreSQL: all later calls fail, Commit included.
type Tx struct {
	db      *Database
	guarded atomic.Bool // a handler is running, which must not end it
	err     error       // why it cannot be used any more
	ended   bool
	rows    map[dedup.KeyHash]*row // nil: forgotten
	data    map[string]any         // nil: removed
	count   map[string]int
	locks   []any
	waits   *lock
	outbox  *outboxtest.Tx // nil: it has enqueued nothing

	// OnStatement is called before each statement of a handler, with what it does, such as "add charges". An error
	// fails the statement, and aborts the transaction. It is called without locks, so it may wait, and it may call Lose.
	// Store.OnBegin sets it.
	OnStatement func(what string) error
}

// errConstraint is the error of a value that a database refuses.
var errConstraint = errors.New("deduptest: constraint violated")

// Add counts one effect, like an INSERT into a table without a unique index: it never waits, and a handler that runs
// twice is noticed. An empty name violates a constraint.
func (tx *Tx) Add(name string) error {
	if err := tx.announce("add", name); err != nil {
		return err
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	if name == "" {
		tx.err = errConstraint
		return tx.err
	}
	tx.count[name]++
	return nil
}

// Fail aborts the transaction with err, as if the database had refused a statement, and returns err.
func (tx *Tx) Fail(err error) error { return tx.abort(err) }

// Put sets the value of name, like an UPDATE: it waits, until ctx ends, for another transaction that has set the same
// name. An empty name violates a constraint. The value must not be changed afterwards.
func (tx *Tx) Put(ctx context.Context, name string, value any) error {
	return tx.Update(ctx, name, func(any) any { return value })
}

// Update sets the value of name to the result of f, which gets the old value. nil means that there is no value.
func (tx *Tx) Update(ctx context.Context, name string, f func(old any) any) error {
	if err := tx.announce("update", name); err != nil {
		return err
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.statement(ctx, name); err != nil {
		return err
	}
	if name == "" {
		tx.err = errConstraint
		return tx.err
	}
	tx.data[name] = f(tx.value(name))
	return nil
}

// Value returns the value of name as tx sees it, or nil.
func (tx *Tx) Value(name string) (any, error) {
	if err := tx.announce("read", name); err != nil {
		return nil, err
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return nil, err
	}
	return tx.value(name), nil
}

// Commit makes the transaction's writes visible. A handler must not call it: then it fails, and nothing of the
// transaction is committed.
func (tx *Tx) Commit(ctx context.Context) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if tx.guarded.Load() {
		tx.err = fmt.Errorf("%w: it called Commit; %w", dedup.ErrTxEnded, dedup.ErrRolledBack)
		return tx.err
	}
	defer tx.close(errors.New("deduptest: transaction has ended"))
	switch {
	case tx.err == nil:
	case errors.Is(tx.err, dedup.ErrTxEnded), errors.Is(tx.err, ErrDown):
		return tx.err
	default: // a statement failed, and the handler ignored that
		return fmt.Errorf("deduptest: rolled back: a statement failed, and the handler returned nil: %w", tx.err)
	}
	if err := tx.db.reachable(ctx); err != nil {
		return err
	}
	for key, r := range tx.rows {
		if r == nil {
			delete(tx.db.rows, key)
		} else {
			tx.db.rows[key] = r
		}
	}
	maps.Copy(tx.db.data, tx.data)
	maps.DeleteFunc(tx.db.data, func(_ string, v any) bool { return v == nil })
	for name, n := range tx.count {
		tx.db.count[name] += n
	}
	if tx.outbox != nil {
		return tx.outbox.Commit()
	}
	return nil
}

// Lose ends the transaction as a lost connection does: the database rolls it back, also while a handler is running, and
// all later calls fail with ErrDown.
func (tx *Tx) Lose() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.close(fmt.Errorf("%w: the connection was lost", ErrDown))
}

// announce calls OnStatement.
func (tx *Tx) announce(verb, what string) error {
	if tx.OnStatement == nil {
		return nil
	}
	if err := tx.OnStatement(verb + " " + what); err != nil {
		return tx.abort(err)
	}
	return nil
}

// Rollback discards the transaction's writes. After Commit it does nothing. A handler must not call it: then InTx fails
// with dedup.ErrTxEnded.
func (tx *Tx) Rollback() error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if tx.guarded.Load() {
		tx.err = fmt.Errorf("%w: it called Rollback; %w", dedup.ErrTxEnded, dedup.ErrRolledBack)
		return tx.err
	}
	tx.close(errors.New("deduptest: transaction has ended"))
	return nil
}

// blame adds to a handler's error that it tried to end the transaction.
func (tx *Tx) blame(err error) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if errors.Is(tx.err, dedup.ErrTxEnded) && !errors.Is(err, dedup.ErrTxEnded) {
		return fmt.Errorf("%w (the handler returned: %w)", tx.err, err)
	}
	return err
}

// The methods below are called with db.mu locked.

func (tx *Tx) usable() error {
	if tx.err != nil && !tx.ended {
		return fmt.Errorf("deduptest: transaction is aborted after: %w", tx.err)
	}
	return tx.err
}

// statement begins a statement that locks id. If it fails, the transaction is aborted.
func (tx *Tx) statement(ctx context.Context, id any) error {
	if err := tx.usable(); err != nil {
		return err
	}
	if err := tx.db.lock(ctx, tx, id); err != nil {
		if tx.err == nil {
			tx.err = err
		}
		return err
	}
	return nil
}

func (tx *Tx) row(key dedup.KeyHash) *row {
	if r, touched := tx.rows[key]; touched {
		return r
	}
	return tx.db.rows[key]
}

func (tx *Tx) value(name string) any {
	if v, touched := tx.data[name]; touched {
		return v
	}
	return tx.db.data[name]
}

// abort locks db.mu itself, unlike the other methods here.
func (tx *Tx) abort(err error) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if tx.err == nil {
		tx.err = err
	}
	return err
}

// close releases the locks. Only the first call has an effect.
func (tx *Tx) close(why error) {
	if tx.ended {
		return
	}
	tx.ended, tx.err = true, why
	if tx.outbox != nil {
		_ = tx.outbox.Rollback() // after Commit it does nothing
	}
	for _, id := range tx.locks {
		tx.db.unlock(tx, id)
	}
	delete(tx.db.open, tx)
}
