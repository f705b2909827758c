package pgxstore

import (
	"cmp"
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// guarded is the pgx.Tx that handlers get. It has all methods of pgx.Tx, but refuses to end the transaction.
type guarded struct {
	pgx.Tx
	g      *guard
	nested bool // this is a savepoint, which may be committed and rolled back
	closed bool // the savepoint was committed or rolled back
}

var _ pgx.Tx = (*guarded)(nil)

// before is called before each statement. exec reports whether Exec sends it.
func (t *guarded) before(ctx context.Context, sql string, args []any, exec bool) error {
	c, err := t.g.check(ctx, sql)
	if err != nil {
		return err
	}
	hidden, enqueues := hides(t.g.c.conn, c, args, exec), t.g.c.store.enqueues(sql)
	if enqueues {
		t.g.wakeAfter(t.g.c.store.writer, nil)
	}
	if hidden || enqueues || c.Savepoint {
		if err := t.g.flush(ctx); err != nil {
			return err
		}
	}
	if hidden || c.Savepoint {
		if err := t.g.points.separate(ctx, t.g.c.conn.PgConn()); err != nil {
			return t.g.failures.note(err)
		}
	}
	if hidden {
		t.g.suspect()
	}
	return nil
}

func (t *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.g.use.enter(); err != nil {
		return nil, err
	}
	defer t.g.use.exit()
	if err := t.g.ready(ctx); err != nil {
		return nil, err
	}
	if err := t.g.flush(ctx); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.g.failures.note(err)
	}
	nested := &guarded{Tx: tx, g: t.g, nested: true}
	t.g.points.opened(nested)
	return nested, nil
}

func (t *guarded) Commit(ctx context.Context) error {
	// waiting messages now belong to the outer transaction
	return t.end(ctx, "called Commit", func() error { return t.Tx.Commit(ctx) })
}

func (t *guarded) Rollback(ctx context.Context) error {
	return t.end(ctx, "called Rollback", func() error {
		err := t.Tx.Rollback(ctx)
		if err == nil {
			t.g.mu.Lock()
			t.g.late.drop()
			t.g.mu.Unlock()
		}
		return err
	})
}

// end ends a savepoint by calling f. For the transaction itself it returns an error that says how the handler tried to
// end it.
func (t *guarded) end(ctx context.Context, how string, f func() error) error {
	if err := t.g.use.enter(); err != nil {
		return err
	}
	defer t.g.use.exit()
	if err := t.g.ready(ctx); err != nil {
		return err
	}
	if !t.nested {
		return t.g.deny(how)
	}
	t.closed = true
	err := t.g.failures.note(f())
	if err == nil {
		t.g.points.closed(t)
	}
	return err
}

func (t *guarded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.g.use.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.g.use.exit()
	if err := t.before(ctx, sql, args, true); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, t.g.answered(tag, err)
}

func (t *guarded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.g.use.enter(); err != nil {
		return pgxrows.Failed{Error: err}, err
	}
	defer t.g.use.exit()
	if err := t.before(ctx, sql, args, false); err != nil {
		return pgxrows.Failed{Error: err}, err
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return guardedRows{rows, t.g}, t.g.failures.note(err)
}

func (t *guarded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.g.use.enter(); err != nil {
		return pgxrows.Failed{Error: err}
	}
	defer t.g.use.exit()
	if err := t.before(ctx, sql, args, false); err != nil {
		return pgxrows.Failed{Error: err}
	}
	rows, _ := t.Tx.Query(ctx, sql, args...) // its error is also that of rows
	return guardedRow{guardedRows{rows, t.g}}
}

func (t *guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.g.use.enter(); err != nil {
		return nil, err
	}
	defer t.g.use.exit()
	c, err := t.g.check(ctx, sql)
	if err != nil {
		return nil, err
	}
	if c.Savepoint || c.Unclear { // its name may look like any statement
		if err := t.g.flush(ctx); err != nil {
			return nil, err
		}
		if err := t.g.points.separate(ctx, t.g.c.conn.PgConn()); err != nil {
			return nil, t.g.failures.note(err)
		}
		t.g.suspect()
	}
	sd, err := t.Tx.Prepare(ctx, name, sql)
	return sd, t.g.failures.note(err)
}

// CopyFrom returns a *consumer.PanicError if src panics.
func (t *guarded) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource,
) (int64, error) {
	if err := t.g.use.enter(); err != nil {
		return 0, err
	}
	defer t.g.use.exit()
	if err := t.g.ready(ctx); err != nil {
		return 0, err
	}
	rows := &copySource{CopyFromSource: src}
	n, err := t.Tx.CopyFrom(ctx, table, columns, rows)
	return n, cmp.Or(rows.ended, t.g.failures.note(err))
}

func (t *guarded) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.g.use.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.g.use.exit()
	for i, q := range b.QueuedQueries {
		if err := t.before(ctx, q.SQL, q.Arguments, false); err != nil {
			return pgx.FailedBatchResults(b, &unsentError{err, i})
		}
	}
	if err := t.g.ready(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	t.g.batches.Add(b)
	return guardedBatch{t.Tx.SendBatch(ctx, watched(t.g, b)), t.g}
}

// Conn returns the connection itself, for operations that pgx.Tx has no method for. InTx then verifies before COMMIT,
// with an extra round trip, that the transaction of the claim is still open. What the handler changes in the session by
// the connection, such as statement_timeout or an advisory lock, stays for later messages: use the methods of the
// transaction for that. After the handler has returned, Conn ends the goroutine: it cannot return an error, and the
// connection may be in use by others.
func (t *guarded) Conn() *pgx.Conn {
	if t.g.use.enter() != nil {
		runtime.Goexit()
	}
	defer t.g.use.exit()
	if err := t.g.ready(t.g.ctx); err != nil && t.Tx == nil {
		// There is no transaction. Whatever the handler sends must fail, because it would be committed alone.
		t.g.c.store.discard(t.g.ctx, t.g.c.conn)
		return t.g.c.conn
	}
	t.g.expose()
	return t.Tx.Conn()
}

// LargeObjects returns an object whose statements the guard does not see. Large objects end with the transaction:
// expose writes the waiting messages, so that pgx's Commit is called, which closes them. It ends the goroutine when
// Conn would.
func (t *guarded) LargeObjects() pgx.LargeObjects {
	if t.g.use.enter() != nil {
		runtime.Goexit()
	}
	defer t.g.use.exit()
	if err := t.g.ready(t.g.ctx); err != nil && t.Tx == nil { // as in Conn
		t.g.c.store.discard(t.g.ctx, t.g.c.conn)
		return pgx.LargeObjects{}
	}
	t.g.expose()
	if t.g.c.standbys { // then COMMIT does not go through pgx's transaction, see commitReplicated
		t.g.mu.Lock()
		t.g.changed.lasting = true
		t.g.mu.Unlock()
	}
	return t.Tx.LargeObjects()
}
