package interleave

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// Tx is the pgx.Tx of a handler that Run runs, or a savepoint of that handler.
type Tx struct {
	handler *handler
	nested  pgx.Tx // a savepoint; nil: the transaction itself
}

var _ pgx.Tx = (*Tx)(nil)

// Guarded returns the transaction that the handlers share, or its savepoint.
func (t *Tx) Guarded() pgx.Tx {
	if t.nested != nil {
		return t.nested
	}
	return t.handler.in.cfg.Tx
}

// Alone waits until the handler has the transaction for itself.
func (t *Tx) Alone(ctx context.Context) error {
	if _, err := t.direct(ctx); err != nil {
		return err
	}
	t.handler.end()
	return nil
}

// Later calls do when all handlers of earlier messages have returned, or have called Later before: at once if the
// handler has the transaction for itself.
func (t *Tx) Later(ctx context.Context, do func(context.Context) error) error {
	h := t.handler
	h.in.mu.Lock()
	err, alone := h.usable(), h.alone
	if err == nil && !alone {
		h.late = append(h.late, do)
	}
	h.in.mu.Unlock()
	if err != nil || !alone {
		return err
	}
	return do(ctx)
}

// direct returns the transaction if the handler has it for itself, and nil if the statements may travel with those of
// other handlers. Without statements it waits until the handler has it. If it returns no error, call handler.end after
// the use of the transaction.
func (t *Tx) direct(ctx context.Context, statements ...statement) (pgx.Tx, error) {
	h := t.handler
	needs := len(statements) == 0
	for _, s := range statements {
		one, err := h.needsAlone(s)
		if err != nil {
			return nil, err
		}
		needs = needs || one
	}
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	if needs {
		if err := h.beAlone(ctx); err != nil {
			h.end()
			return nil, err
		}
	}
	if !h.isAlone() {
		return nil, nil
	}
	return t.Guarded(), nil
}

// Exec implements pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s := statement{sql, args, true}
	tx, err := t.direct(ctx, s)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.handler.end()
	if tx != nil {
		return tx.Exec(ctx, sql, args...)
	}
	results, err := t.handler.ask(ctx, s)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return results[0].tag, nil
}

// Query implements pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s := statement{sql, args, false}
	tx, err := t.direct(ctx, s)
	if err != nil {
		return pgxrows.Failed{Error: err}, err
	}
	defer t.handler.end()
	if tx != nil {
		return tx.Query(ctx, sql, args...) //nolint:sqlclosecheck // the caller closes them
	}
	results, err := t.handler.ask(ctx, s)
	if err != nil {
		return pgxrows.Failed{Error: err}, err
	}
	return results[0].rows(t.handler), nil
}

// QueryRow implements pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...)
	return pgxrows.First{Rows: rows}
}

// SendBatch implements pgx.Tx.
func (t *Tx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	statements := make([]statement, len(batch.QueuedQueries))
	for i, q := range batch.QueuedQueries {
		statements[i] = statement{q.SQL, q.Arguments, false}
	}
	tx, err := t.direct(ctx, statements...)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	defer t.handler.end()
	if tx != nil {
		return tx.SendBatch(ctx, batch)
	}
	results, err := t.handler.ask(ctx, statements...)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	t.handler.batches.Add(batch)
	return &readBatch{handler: t.handler, queries: batch.QueuedQueries, results: results, closed: t.handler.opened()}
}

// Begin implements pgx.Tx.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return nil, err
	}
	defer t.handler.end()
	nested, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &Tx{t.handler, nested}, nil
}

// Commit implements pgx.Tx.
func (t *Tx) Commit(ctx context.Context) error {
	tx, err := t.direct(ctx)
	if err != nil {
		return err
	}
	defer t.handler.end()
	return tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *Tx) Rollback(ctx context.Context) error {
	tx, err := t.direct(ctx)
	if err != nil {
		return err
	}
	defer t.handler.end()
	return tx.Rollback(ctx)
}

// Prepare implements pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return nil, err
	}
	defer t.handler.end()
	return tx.Prepare(ctx, name, sql)
}

// CopyFrom implements pgx.Tx.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource,
) (int64, error) {
	tx, err := t.direct(ctx)
	if err != nil {
		return 0, err
	}
	defer t.handler.end()
	return tx.CopyFrom(ctx, table, columns, src)
}

// Conn returns the connection, which other handlers do not use until this one has returned. When the handler cannot get
// it any more, Conn ends the goroutine: it cannot return an error, and the connection is in use by others.
func (t *Tx) Conn() *pgx.Conn {
	tx, err := t.direct(t.handler.in.ctx)
	if err != nil {
		runtime.Goexit()
	}
	defer t.handler.end()
	return tx.Conn()
}

// LargeObjects ends the goroutine when Conn would.
func (t *Tx) LargeObjects() pgx.LargeObjects {
	tx, err := t.direct(t.handler.in.ctx)
	if err != nil {
		runtime.Goexit()
	}
	defer t.handler.end()
	return tx.LargeObjects()
}
