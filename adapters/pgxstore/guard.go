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
	store    *Store
	ctx      context.Context // the ctx of InTx, for Conn, which has no ctx parameter
	conn     *pgx.Conn
	tx       pgx.Tx
	xid      string       // the transaction's id; empty while it has written nothing
	standbys bool         // COMMIT waits for synchronous standbys
	session  sessionState // as the claim found it; empty: the transaction has not begun
	shared   bool         // several handlers may use the transaction

	mu         sync.Mutex
	begin      func(context.Context) error // begins the transaction when the handler first uses it; nil: it has begun
	ended      error                       // the handler tried to end the transaction, or the transaction ended in another way
	denied     bool                        // the handler tried to end the transaction, and the statement was not sent
	first      error                       // the error of the first failed statement: it decides what a later 25P02 means
	answers    []*pgconn.PgError           // the server's errors for the handler's statements
	unverified bool                        // since the last verification the handler could have ended this transaction and begun another
	exposed    bool                        // the handler got the connection itself and may still use it
	temporary  bool                        // the handler may have created a temporary table
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

	batches sentBatches

	early    bool               // the handler runs before its message is claimed, see early.go
	guessed  bool               // early, and begin has found out that the handler must run again after the claim
	deferred []*pgx.QueuedQuery // statements that travel with COMMIT, see deferred.go
	deadline time.Time          // of the handler that queued them; zero: none

	inserted map[dedup.KeyHash]bool // keys that InTx has claimed
	results  []savedResult          // saved since the latest statement and not yet written, see result.go

	waiting []outgoing // enqueued since the newest savepoint and not yet written, see outbox_buffer.go
	wakes   []wakeUp   // notifications to send after COMMIT
}

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

// mostAnswers limits how many errors of statements are kept: the latest ones, because a handler usually returns the last one.
const mostAnswers = 64

// note records err as the server's answer to a statement of this transaction, and as the error that aborted it. It returns err.
// A transaction that still accepts statements is not aborted, so its earlier errors are forgotten.
func (g *guard) note(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		g.answers = append(g.answers[max(0, len(g.answers)+1-mostAnswers):], answer)
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
	g.unverified, g.resync = true, true
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
	g.mu.Lock()
	alone := g.resync && g.exposed // pgx's Commit, which ends the handler's large objects, sends nothing else
	g.mu.Unlock()
	if !alone || g.notBegun() || g.store.cfg.AllowAsyncCommit {
		return nil
	}
	if _, err := g.tx.Exec(ctx, g.store.plain.Sync, g.session.sync); err != nil {
		return database.Errorf("pgxstore: set synchronous_commit back: %w", err)
	}
	g.mu.Lock()
	g.resync = false
	g.mu.Unlock()
	return nil
}

// settings records what a statement changes in the session. Behind a pooler, where the session outlives the connection, it refuses a
// statement whose change would outlive the transaction.
func (g *guard) settings(c dialect.Control, sql string) error {
	if !c.Sets && !c.Session && !c.Temporary {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.Session && g.store.pooled.Load() {
		if g.ended == nil {
			g.ended = fmt.Errorf("pgxstore: refused, because it would change a session of the pooler, which other clients use: %.80q; use "+localForms, sql)
		}
		return g.ended
	}
	g.changed = g.changed || c.Session
	g.temporary = g.temporary || c.Temporary
	g.resync = g.resync || c.Sets
	return nil
}

// localForms are the forms of statements whose effect ends with the transaction.
const localForms = "SET LOCAL, set_config(…, true), pg_advisory_xact_lock, or CREATE TEMP TABLE … ON COMMIT DROP"

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
				"use "+localForms)
		})
	}
	if changed || ended {
		g.store.discard(ctx, g.conn)
	}
}
