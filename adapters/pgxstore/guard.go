package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// guard watches over one transaction while a handler has it: whatever the handler does, its effects must not be
// committed without the claim, and the claim not without saying so.
type guard struct {
	store *Store
	ctx   context.Context // of InTx, for Conn, which has none
	conn  *pgx.Conn
	tx    pgx.Tx
	xid   string // of the transaction; empty while it has written nothing

	mu       sync.Mutex
	ended    error // the handler tried to end the transaction, or something else ended it
	first    error // the first statement that failed: it decides what a later 25P02 means
	unproven bool  // the handler had means to end this transaction and begin another unseen

	waiting []outgoing // enqueued since the newest savepoint, and to be written, see outbox_buffer.go
	wakes   []wakeUp   // to send after COMMIT
}

// guarded is the pgx.Tx that handlers get. It is the whole of pgx.Tx but for ending the transaction.
type guarded struct {
	pgx.Tx
	g      *guard
	nested bool // a savepoint, which may be committed and rolled back
	closed bool // and was
}

var _ pgx.Tx = (*guarded)(nil)

// refused says what ended the transaction, for every statement after it.
func (g *guard) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil && !g.conn.IsClosed() && g.conn.PgConn().TxStatus() == 'I' {
		g.ended = fmt.Errorf("%w: the server reports no transaction any more", dedup.ErrTxEnded)
	}
	return g.ended
}

// check is called before each statement.
func (g *guard) check(sql string) error {
	if err := g.refused(); err != nil {
		return err
	}
	if dialect.EndsTransaction(sql) {
		return g.end(fmt.Sprintf("sent %.40q", sql))
	}
	return nil
}

func (g *guard) end(how string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil {
		g.ended = fmt.Errorf("%w: the handler %s; return nil to commit, an error to roll back", dedup.ErrTxEnded, how)
	}
	return g.ended
}

// note keeps the first error that broke the transaction, and returns err.
func (g *guard) note(err error) error {
	if err == nil || !g.conn.IsClosed() && g.conn.PgConn().TxStatus() == 'T' {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil {
		g.first = err
	}
	return err
}

func (g *guard) suspect() {
	g.mu.Lock()
	g.unproven = true
	g.mu.Unlock()
}

// hides reports whether sql may be more, or other, than what check has seen of it. A string without parameters that is sent
// by Exec may hold several statements, in whatever mode; with the simple protocol every one may.
func (g *guard) hides(sql string, args []any, exec bool) bool {
	mode := g.conn.Config().DefaultQueryExecMode
	for ; len(args) > 0; args = args[1:] {
		switch option := args[0].(type) {
		case pgx.QueryExecMode:
			mode = option
			continue
		case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.NamedArgs, pgx.StrictNamedArgs:
			continue
		case pgx.QueryRewriter:
			return true
		}
		break
	}
	exec = exec && len(args) == 0
	return (exec || mode == pgx.QueryExecModeSimpleProtocol) && dialect.Several(sql)
}

// before is called before each statement; exec says that Exec sends it.
func (t *guarded) before(ctx context.Context, sql string, args []any, exec bool) error {
	if err := t.g.check(sql); err != nil {
		return err
	}
	hides, enqueues := t.g.hides(sql, args, exec), t.g.store.enqueues(sql)
	if enqueues {
		t.g.wakeAfter(t.g.store, nil)
	}
	if hides || enqueues || dialect.MovesSavepoint(sql) {
		if err := t.g.flush(ctx); err != nil {
			return err
		}
	}
	if hides {
		t.g.suspect()
	}
	return nil
}

func (t *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.g.refused(); err != nil {
		return nil, err
	}
	if err := t.g.flush(ctx); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.g.note(err)
	}
	return &guarded{Tx: tx, g: t.g, nested: true}, nil
}

func (t *guarded) Commit(ctx context.Context) error {
	if !t.nested {
		return t.g.end("called Commit")
	}
	if err := t.g.refused(); err != nil {
		return err
	}
	t.closed = true
	return t.g.note(t.Tx.Commit(ctx)) // what waits is now the outer one's
}

func (t *guarded) Rollback(ctx context.Context) error {
	if !t.nested {
		return t.g.end("called Rollback")
	}
	if err := t.g.refused(); err != nil {
		return err
	}
	t.closed = true
	err := t.Tx.Rollback(ctx)
	if err == nil {
		t.g.forgive()
		t.g.drop()
	}
	return err
}

// forgive forgets the first failure once a savepoint has healed it.
func (g *guard) forgive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn.PgConn().TxStatus() == 'T' {
		g.first = nil
	}
}

func (t *guarded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.before(ctx, sql, args, true); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.Tx.Exec(ctx, sql, args...)
	if s := tag.String(); s == "COMMIT" || s == "ROLLBACK" {
		t.g.suspect() // ROLLBACK TO SAVEPOINT, or something that check did not recognise
	}
	return tag, t.g.note(err)
}

func (t *guarded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.before(ctx, sql, args, false); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return guardedRows{rows, t.g}, t.g.note(err)
}

func (t *guarded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.before(ctx, sql, args, false); err != nil {
		return failedRows{err: err}
	}
	return guardedRow{t.Tx.QueryRow(ctx, sql, args...), t.g}
}

func (t *guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.g.check(sql); err != nil {
		return nil, err
	}
	if dialect.MovesSavepoint(sql) { // under a name that may look like anything
		if err := t.g.flush(ctx); err != nil {
			return nil, err
		}
		t.g.suspect()
	}
	sd, err := t.Tx.Prepare(ctx, name, sql)
	return sd, t.g.note(err)
}

func (t *guarded) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.g.refused(); err != nil {
		return 0, err
	}
	n, err := t.Tx.CopyFrom(ctx, table, columns, src)
	return n, t.g.note(err)
}

func (t *guarded) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.before(ctx, q.SQL, q.Arguments, false); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	if err := t.g.refused(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return guardedBatch{t.Tx.SendBatch(ctx, b), t.g}
}

// Conn gives the connection itself, for what pgx.Tx has no method for. InTx then proves before COMMIT, with a round trip of
// its own, that it is still in the transaction that claimed.
func (t *guarded) Conn() *pgx.Conn {
	t.g.expose()
	return t.Tx.Conn()
}

// errSwallowed is not ErrTxEnded: the statement that failed decides whose fault it was.
var errSwallowed = errors.New("pgxstore: rolled back: a statement failed, and the handler returned nil")

// verdict says, after the handler returned nil, whether COMMIT may be sent.
func (g *guard) verdict(ctx context.Context) error {
	if err := g.refused(); err != nil {
		return err
	}
	switch {
	case g.conn.IsClosed():
		return databaseError{fmt.Errorf("pgxstore: connection lost before COMMIT: %w", g.first)}
	case g.conn.PgConn().TxStatus() == 'E':
		return g.aborted(errSwallowed)
	case !g.unproven || g.xid == "":
		return nil
	}
	var xid string
	if err := g.conn.QueryRow(ctx, `SELECT coalesce(pg_current_xact_id_if_assigned()::text, '')`).Scan(&xid); err != nil {
		return databaseError{fmt.Errorf("pgxstore: prove the transaction: %w", err)}
	}
	if xid != g.xid {
		return fmt.Errorf("%w: the handler ended transaction %s and began another", dedup.ErrTxEnded, g.xid)
	}
	return nil
}

// aborted adds the first failure to err, where there was one before it: it decides what is retryable.
func (g *guard) aborted(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil || errors.Is(err, g.first) {
		return err
	}
	return &abortedError{err: err, first: g.first}
}

// abortedError is what became of a transaction after a statement that the handler had swallowed.
type abortedError struct{ err, first error }

func (e *abortedError) Error() string { return fmt.Sprintf("%v; it began with: %v", e.err, e.first) }

func (e *abortedError) Unwrap() []error { return []error{e.first, e.err} }
