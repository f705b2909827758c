package pgxstore

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// branchTx is the pgx.Tx of a handler that Interleave runs, or a savepoint of that handler.
type branchTx struct {
	branch *branch
	nested *guarded // a savepoint; nil: the transaction itself
}

var _ pgx.Tx = (*branchTx)(nil)

// guardOf returns the guarded transaction behind tx, and its branch if Interleave runs the handler. Both are nil if tx is not ours.
func guardOf(tx pgx.Tx) (*guarded, *branch) {
	switch tx := tx.(type) {
	case *guarded:
		return tx, nil
	case *branchTx:
		return tx.guarded(), tx.branch
	}
	return nil, nil
}

func (t *branchTx) guarded() *guarded {
	if t.nested != nil {
		return t.nested
	}
	return t.branch.f.tx
}

// direct returns the transaction if the handler has it for itself, and nil if the statements may travel with those of other handlers.
// If it returns no error, call branch.end after the use of the transaction.
func (t *branchTx) direct(ctx context.Context, statements ...statement) (*guarded, error) {
	b := t.branch
	needs := len(statements) == 0
	for _, s := range statements {
		one, err := b.needsTurn(s)
		if err != nil {
			return nil, err
		}
		needs = needs || one
	}
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if needs {
		if err := b.takeTurn(ctx); err != nil {
			b.end()
			return nil, err
		}
	}
	if !b.hasTurn() {
		return nil, nil
	}
	return t.guarded(), nil
}

func (t *branchTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s := statement{sql, args, true}
	tx, err := t.direct(ctx, s)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.branch.end()
	if tx != nil {
		return tx.Exec(ctx, sql, args...)
	}
	results, err := t.branch.ask(ctx, s)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return results[0].tag, nil
}

func (t *branchTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s := statement{sql, args, false}
	tx, err := t.direct(ctx, s)
	if err != nil {
		return failedRows{err: err}, err
	}
	defer t.branch.end()
	if tx != nil {
		return tx.Query(ctx, sql, args...) //nolint:sqlclosecheck // the caller closes them
	}
	results, err := t.branch.ask(ctx, s)
	if err != nil {
		return failedRows{err: err}, err
	}
	return results[0].rows(t.branch), nil
}

func (t *branchTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return firstRow{rows}
}

func (t *branchTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	statements := make([]statement, len(batch.QueuedQueries))
	for i, q := range batch.QueuedQueries {
		statements[i] = statement{q.SQL, q.Arguments, false}
	}
	tx, err := t.direct(ctx, statements...)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	defer t.branch.end()
	if tx != nil {
		return tx.SendBatch(ctx, batch)
	}
	results, err := t.branch.ask(ctx, statements...)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	t.branch.batches.sent(batch)
	return &readBatch{branch: t.branch, queries: batch.QueuedQueries, results: results, closed: t.branch.opened()}
}

func (t *branchTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return nil, err
	}
	defer t.branch.end()
	nested, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &branchTx{t.branch, nested.(*guarded)}, nil //nolint:forcetypeassert // guarded.Begin returns no other type
}

func (t *branchTx) Commit(ctx context.Context) error {
	tx, err := t.direct(ctx)
	if err != nil {
		return err
	}
	defer t.branch.end()
	return tx.Commit(ctx)
}

func (t *branchTx) Rollback(ctx context.Context) error {
	tx, err := t.direct(ctx)
	if err != nil {
		return err
	}
	defer t.branch.end()
	return tx.Rollback(ctx)
}

func (t *branchTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return nil, err
	}
	defer t.branch.end()
	return tx.Prepare(ctx, name, sql)
}

func (t *branchTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return 0, err
	}
	defer t.branch.end()
	return tx.CopyFrom(ctx, table, columns, src)
}

// Conn returns the connection, which other handlers do not use until this one has returned. When the handler cannot get it any more,
// Conn ends the goroutine: it cannot return an error, and the connection is in use by others.
func (t *branchTx) Conn() *pgx.Conn {
	tx, err := t.direct(t.branch.f.ctx)
	if err != nil {
		runtime.Goexit()
	}
	defer t.branch.end()
	return tx.Conn()
}

// LargeObjects ends the goroutine when Conn would.
func (t *branchTx) LargeObjects() pgx.LargeObjects {
	tx, err := t.direct(t.branch.f.ctx)
	if err != nil {
		runtime.Goexit()
	}
	defer t.branch.end()
	return tx.LargeObjects()
}
