package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// failures remembers the errors of a transaction's statements, and when they began: later errors are explained by them.
type failures struct {
	conn *pgx.Conn

	mu      sync.Mutex
	first   error             // the error of the first failed statement: it decides what a later 25P02 means
	answers []*pgconn.PgError // the server's errors for the handler's statements
	stale   bool              // the connection has a stale plan
	latest  time.Time         // when the latest statement began
	idle    time.Duration     // the longest time between two statements
}

// mostAnswers limits how many errors of statements are kept: the latest ones, because a handler usually returns the
// last one.
const mostAnswers = 64

// touch records that a statement begins.
func (f *failures) touch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.idle, f.latest = max(f.idle, now.Sub(f.latest)), now
}

// begin records that the transaction begins.
func (f *failures) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest = time.Now()
}

// note records err as the server's answer to a statement of this transaction, and as the error that aborted it. It
// returns err. A transaction that still accepts statements is not aborted, so its earlier errors are forgotten.
func (f *failures) note(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		f.answers = append(f.answers[max(0, len(f.answers)+1-mostAnswers):], answer)
		f.stale = f.stale || isStalePlan(answer)
	}
	switch {
	case !f.conn.IsClosed() && f.conn.PgConn().TxStatus() == 'T':
		f.first = nil
	case err != nil && f.first == nil:
		f.first = err
	}
	return err
}

func (f *failures) stalePlan() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale
}

// has reports whether err holds a server's answer to a statement of this transaction.
func (f *failures) has(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Is(err, f.first) ||
		slices.ContainsFunc(f.answers, func(answer *pgconn.PgError) bool { return errors.Is(err, answer) })
}

// aborted adds the error of the first failed statement to err, if there is one. That error decides whether err is
// Retryable.
func (f *failures) aborted(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil || errors.Is(err, f.first) {
		return err
	}
	return &abortedError{err: err, first: f.first}
}

// abortedError reports a transaction that was aborted by an earlier error, which the handler ignored.
type abortedError struct{ err, first error }

func (e *abortedError) Error() string { return fmt.Sprintf("%v; it began with: %v", e.err, e.first) }

func (e *abortedError) Unwrap() []error { return []error{e.first, e.err} }

// lost explains why the connection was lost. err is the handler's error, or nil. The database is at fault, unless the
// server ended the transaction because it was idle for longer than limit.
func (f *failures) lost(what string, err error, limit time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.first
	}
	switch idle := max(f.idle, time.Since(f.latest)); {
	case isUnencodable(err):
		return err
	case isUnencodable(f.first):
		return &abortedError{err: err, first: f.first}
	case isIdle(err):
		return idleError(limit, err)
	case isIdle(f.first):
		return idleError(limit, f.first)
	case class(f.first) == driver.FaultTimeLimit && class(err) != driver.FaultTimeLimit: // the handler's error hides it
		return database.Errorf("pgxstore: %s: %w (the handler returned: %w)", what, f.first, err)
	case err == nil:
		return database.Errorf("pgxstore: %s", what)
	case limit > 0 && idle >= limit:
		return database.Errorf("pgxstore: %s, after %v between two statements, where Config.IdleInTxTimeout is %v: %w",
			what, idle.Round(time.Millisecond), limit, err)
	}
	return database.Errorf("pgxstore: %s: %w", what, err)
}

// blame adds to a handler's error what the handler cannot know: an earlier statement aborted the transaction, or the
// connection was lost.
func (g *guard) blame(err error) error {
	g.mu.Lock()
	ended, exposed := g.ended, g.sight.exposed
	g.mu.Unlock()
	switch {
	case ended != nil && !errors.Is(err, dedup.ErrTxEnded):
		return fmt.Errorf("%w (the handler returned: %w)", ended, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err // a time limit of the handler, or the end of ctx, which also closes the connection
	case g.c.conn.IsClosed():
		return g.failures.lost("connection lost", err, g.c.store.cfg.IdleInTxTimeout)
	case errors.As(err, new(*pgconn.PgError)) && !exposed && !g.failures.has(err): // an answer to another transaction
		return foreignError{err}
	case g.c.conn.PgConn().TxStatus() == 'E':
		return g.failures.aborted(err)
	}
	return err
}
