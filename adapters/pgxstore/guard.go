package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// guard checks everything that a handler does with one transaction. The handler's effects must never be committed without the
// claim. If the claim is committed, InTx must report it.
type guard struct {
	store        *Store
	ctx          context.Context // the ctx of InTx, for Conn, which has no ctx parameter
	conn         *pgx.Conn
	tx           pgx.Tx
	xid          string // the transaction's id; empty while it has written nothing
	standbys     bool   // COMMIT waits for synchronous standbys
	sessionState string // as the claim found it, see dialect.Postgres.Session; empty: nothing was claimed
	shared       bool   // several handlers may use the transaction

	mu         sync.Mutex
	begin      func(context.Context) error // begins the transaction when the handler first uses it; nil: it has begun
	ended      error                       // the handler tried to end the transaction, or the transaction ended in another way
	denied     bool                        // the handler tried to end the transaction, and the statement was not sent
	first      error                       // the error of the first failed statement: it decides what a later 25P02 means
	answers    []*pgconn.PgError           // the server's errors for the handler's statements
	unverified bool                        // since the last verification the handler could have ended this transaction and begun another
	exposed    bool                        // the handler got the connection itself and may still use it
	changed    bool                        // the session was changed or has a stale plan: the connection must not be reused
	resync     bool                        // the handler may have made COMMIT less durable
	latest     time.Time                   // when the latest statement began
	idle       time.Duration               // the longest time between two statements

	using  int           // calls of the handler that use the transaction
	over   bool          // the handler has returned
	unused chan struct{} // closed when using gets 0 after that

	moved     bool       // since the last verification the handler may have set a savepoint, or rolled back to one
	separated bool       // the Store's own savepoint is set, see savepoint.go
	within    int        // how many of nested were open then
	nested    []*guarded // savepoints that Begin has set and that are still open, oldest first

	inserted map[dedup.KeyHash]bool // keys that InTx has claimed
	results  []savedResult          // saved since the latest statement and not yet written, see result.go

	waiting []outgoing // enqueued since the newest savepoint and not yet written, see outbox_buffer.go
	wakes   []wakeUp   // notifications to send after COMMIT
}

// guarded is the pgx.Tx that handlers get. It has all methods of pgx.Tx, but refuses to end the transaction.
type guarded struct {
	pgx.Tx
	g      *guard
	nested bool // this is a savepoint, which may be committed and rolled back
	closed bool // the savepoint was committed or rolled back
}

var _ pgx.Tx = (*guarded)(nil)

// refused returns why the transaction has ended, as the error for every later statement; nil if it has not ended.
func (g *guard) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil && g.begin == nil && !g.conn.IsClosed() && g.conn.PgConn().TxStatus() == 'I' {
		g.ended = fmt.Errorf("%w: the server reports no transaction any more", dedup.ErrTxEnded)
	}
	return g.ended
}

// check is called before each statement is sent.
func (g *guard) check(ctx context.Context, sql string) (dialect.Control, error) {
	if err := g.ready(ctx); err != nil {
		return dialect.Control{}, err
	}
	g.touch()
	c := dialect.Inspect(sql)
	if c.Ends {
		return c, g.end(fmt.Sprintf("sent %.40q", sql))
	}
	return c, nil
}

// touch records that a statement begins.
func (g *guard) touch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.idle, g.latest = max(g.idle, now.Sub(g.latest)), now
}

func (g *guard) end(how string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil {
		g.ended, g.denied = fmt.Errorf("%w: the handler %s; return nil to commit, an error to roll back", dedup.ErrTxEnded, how), true
	}
	return g.ended
}

// mostAnswers limits how many errors of statements are kept.
const mostAnswers = 64

// note records err as the server's answer to a statement of this transaction, and as the error that aborted it. It returns err.
// A transaction that still accepts statements is not aborted, so its earlier errors are forgotten.
func (g *guard) note(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && len(g.answers) < mostAnswers {
		g.answers = append(g.answers, answer)
		g.changed = g.changed || isStalePlan(answer)
	}
	switch {
	case !g.conn.IsClosed() && g.conn.PgConn().TxStatus() == 'T':
		g.first = nil
	case err != nil && g.first == nil:
		g.first = err
	}
	return err
}

// tagged checks the command tag of a statement. The tag ROLLBACK may belong to ROLLBACK TO, or to a prepared statement whose
// text check has not seen.
func (g *guard) tagged(tag pgconn.CommandTag) {
	if s := tag.String(); s == "COMMIT" || s == "ROLLBACK" {
		g.suspect()
	}
}

func (g *guard) suspect() {
	g.mu.Lock()
	g.unverified = true
	g.mu.Unlock()
}

// hides reports whether sql may do more, or something else, than check has found, which is c. Exec without parameters may send
// several statements in any mode. With the simple protocol every method may.
func (g *guard) hides(c dialect.Control, args []any, exec bool) bool {
	if c.Unclear || hidesText(g.conn) {
		return true
	}
	mode, chosen := pgx.QueryExecMode(0), false
	for ; len(args) > 0; args = args[1:] {
		switch option := args[0].(type) {
		case pgx.QueryExecMode:
			mode, chosen = option, true
			continue
		case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.NamedArgs, pgx.StrictNamedArgs:
			continue
		case pgx.QueryRewriter:
			return true
		}
		break
	}
	if c.Several && !chosen {
		mode = g.conn.Config().DefaultQueryExecMode // Config copies everything, so it is not called for each statement
	}
	exec = exec && len(args) == 0
	return (exec || mode == pgx.QueryExecModeSimpleProtocol) && c.Several
}

// hidesText reports whether the server parses strings in another way than dialect.Inspect.
func hidesText(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("standard_conforming_strings") == "off"
}

// before is called before each statement. exec reports whether Exec sends it.
func (t *guarded) before(ctx context.Context, sql string, args []any, exec bool) error {
	c, err := t.g.check(ctx, sql)
	if err != nil {
		return err
	}
	t.g.settings(c, sql, args)
	hides, enqueues := t.g.hides(c, args, exec), t.g.store.enqueues(sql)
	if enqueues {
		t.g.wakeAfter(t.g.store, nil)
	}
	if hides || enqueues || c.Savepoint {
		if err := t.g.flush(ctx); err != nil {
			return err
		}
	}
	if hides || c.Savepoint {
		if err := t.g.separate(ctx); err != nil {
			return err
		}
	}
	if hides {
		t.g.suspect()
	}
	return nil
}

func (t *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.g.enter(); err != nil {
		return nil, err
	}
	defer t.g.exit()
	if err := t.g.ready(ctx); err != nil {
		return nil, err
	}
	if err := t.g.flush(ctx); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.g.note(err)
	}
	nested := &guarded{Tx: tx, g: t.g, nested: true}
	t.g.mu.Lock()
	t.g.nested = append(t.g.nested, nested)
	t.g.mu.Unlock()
	return nested, nil
}

func (t *guarded) Commit(ctx context.Context) error {
	if err := t.g.enter(); err != nil {
		return err
	}
	defer t.g.exit()
	if err := t.g.ready(ctx); err != nil {
		return err
	}
	if !t.nested {
		return t.g.end("called Commit")
	}
	t.closed = true
	err := t.g.note(t.Tx.Commit(ctx)) // waiting messages now belong to the outer transaction
	if err == nil {
		t.g.closed(t)
	}
	return err
}

func (t *guarded) Rollback(ctx context.Context) error {
	if err := t.g.enter(); err != nil {
		return err
	}
	defer t.g.exit()
	if err := t.g.ready(ctx); err != nil {
		return err
	}
	if !t.nested {
		return t.g.end("called Rollback")
	}
	t.closed = true
	err := t.g.note(t.Tx.Rollback(ctx))
	if err == nil {
		t.g.drop()
		t.g.closed(t)
	}
	return err
}

func (t *guarded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.g.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.g.exit()
	if err := t.before(ctx, sql, args, true); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.Tx.Exec(ctx, sql, args...)
	t.g.tagged(tag)
	return tag, t.g.note(err)
}

func (t *guarded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.g.enter(); err != nil {
		return failedRows{err: err}, err
	}
	defer t.g.exit()
	if err := t.before(ctx, sql, args, false); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return guardedRows{rows, t.g}, t.g.note(err)
}

func (t *guarded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.g.enter(); err != nil {
		return failedRows{err: err}
	}
	defer t.g.exit()
	if err := t.before(ctx, sql, args, false); err != nil {
		return failedRows{err: err}
	}
	return guardedRow{t.Tx.QueryRow(ctx, sql, args...), t.g}
}

func (t *guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.g.enter(); err != nil {
		return nil, err
	}
	defer t.g.exit()
	c, err := t.g.check(ctx, sql)
	if err != nil {
		return nil, err
	}
	t.g.settings(c, sql, nil)
	if c.Savepoint || c.Unclear { // its name may look like any statement
		if err := t.g.flush(ctx); err != nil {
			return nil, err
		}
		if err := t.g.separate(ctx); err != nil {
			return nil, err
		}
		t.g.suspect()
	}
	sd, err := t.Tx.Prepare(ctx, name, sql)
	return sd, t.g.note(err)
}

func (t *guarded) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.g.enter(); err != nil {
		return 0, err
	}
	defer t.g.exit()
	if err := t.g.ready(ctx); err != nil {
		return 0, err
	}
	n, err := t.Tx.CopyFrom(ctx, table, columns, src)
	return n, t.g.note(err)
}

func (t *guarded) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.g.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.g.exit()
	for i, q := range b.QueuedQueries {
		if err := t.before(ctx, q.SQL, q.Arguments, false); err != nil {
			return pgx.FailedBatchResults(b, &unsentError{err, i})
		}
	}
	if err := t.g.ready(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return guardedBatch{t.Tx.SendBatch(ctx, b), t.g}
}

// Conn returns the connection itself, for operations that pgx.Tx has no method for. InTx then verifies before COMMIT, with an
// extra round trip, that the transaction of the claim is still open.
func (t *guarded) Conn() *pgx.Conn {
	if t.g.enter() == nil {
		defer t.g.exit()
		_ = t.g.ready(t.g.ctx)
		t.g.expose()
	}
	if t.Tx == nil { // InTx has returned, or the connection is closed because the transaction could not begin
		return t.g.conn
	}
	return t.Tx.Conn()
}

// LargeObjects returns an object whose statements the guard does not see. Large objects end with the transaction: expose writes
// the waiting messages, so that pgx's Commit is called, which closes them.
func (t *guarded) LargeObjects() pgx.LargeObjects {
	if err := t.g.enter(); err != nil {
		return pgx.LargeObjects{}
	}
	defer t.g.exit()
	_ = t.g.ready(t.g.ctx)
	t.g.expose()
	if t.g.standbys { // then COMMIT does not go through pgx's transaction, see commitReplicated
		t.g.settings(dialect.Control{Session: true}, "", nil)
	}
	if t.Tx == nil { // as in Conn
		return pgx.LargeObjects{}
	}
	return t.Tx.LargeObjects()
}

// finish prepares the transaction for COMMIT after the handler returned nil.
func (g *guard) finish(ctx context.Context) error {
	if err := g.verifyForCommit(ctx, false); err != nil {
		return err
	}
	g.mu.Lock()
	exposed := g.exposed && !g.unverified && g.xid != "" // VerifyTx verified it, but the handler may have used the connection since
	g.mu.Unlock()
	if exposed {
		if err := g.verify(ctx, false); err != nil {
			return err
		}
	}
	if err := g.resyncs(ctx); err != nil {
		return err
	}
	if g.changed && g.store.pooled.Load() { // a session behind a pooler outlives the connection
		if _, err := g.conn.PgConn().Exec(ctx, g.store.sql.Reset).ReadAll(); err != nil {
			return database.Errorf("pgxstore: reset the session: %w", err)
		}
	}
	return nil
}

// leave ends the handler's use of the transaction. If the connection must not be reused, leave closes it. After a handler ended
// its transaction, the state of the connection is unknown.
func (g *guard) leave(ctx context.Context) {
	g.returned() // after a panic
	g.shut()
	g.mu.Lock()
	changed, ended := g.changed, errors.Is(g.ended, dedup.ErrTxEnded)
	g.mu.Unlock()
	if changed {
		g.store.warned.Do(func() {
			g.store.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection because the handler changed its session; this happens after each such handler: "+
				"use SET LOCAL, set_config(…, true), ON COMMIT DROP and pg_advisory_xact_lock")
		})
	}
	if changed || ended {
		g.store.discard(ctx, g.conn)
	}
}
