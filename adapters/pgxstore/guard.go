package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// guard checks everything that a handler does with one transaction. The handler's effects must never be committed
// without the claim. If the claim is committed, InTx must report it.
//
// use, failures, points and batches each have a mutex of their own. mu guards the plain values below it together:
// nothing may be kept for COMMIT once the transaction has ended, or while the guard does not see what the handler
// sends.
type guard struct {
	c   *claim
	ctx context.Context // the ctx of InTx, for Conn, which has no ctx parameter

	use      usage
	failures failures
	points   savepoints
	batches  pgxrows.SentBatches

	mu      sync.Mutex
	begin   func(context.Context) error // begins the transaction when the handler first uses it; nil: it has begun
	ended   error                       // why the transaction takes no statement any more; nil: it does
	sight   sight
	changed changes
	late    lateWrites
}

// sight is what the guard may not have seen.
type sight struct {
	lost    bool // since the last verification the handler could have ended this transaction and begun another
	exposed bool // the handler got the connection itself and may still use it
	denied  bool // the handler tried to end the transaction, and the statement was not sent
}

// changes is what the handler may have changed in the session.
type changes struct {
	lasting   bool // the session was changed: the connection must not be reused
	temporary bool // the handler may have created a temporary table
	sync      bool // the handler may have made COMMIT less durable
}

// add adds what a statement may change.
func (ch *changes) add(c dialect.Control) {
	ch.lasting = ch.lasting || c.Session
	ch.temporary = ch.temporary || c.Temporary
	ch.sync = ch.sync || c.Sets
}

// refused returns why the transaction has ended, as the error for every later statement; nil if it has not ended.
func (g *guard) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil && g.begin == nil && !g.c.conn.IsClosed() && g.c.conn.PgConn().TxStatus() == 'I' {
		g.ended = fmt.Errorf("%w: the server reports no transaction any more", dedup.ErrTxEnded)
	}
	return g.ended
}

// check is called before each statement is sent. Behind a pooler, where the session outlives the connection, it refuses
// a statement whose change of the session would outlive the transaction.
func (g *guard) check(ctx context.Context, sql string) (dialect.Control, error) {
	if err := g.ready(ctx); err != nil {
		return dialect.Control{}, err
	}
	g.failures.touch()
	c := dialect.Inspect(sql)
	if c.Ends {
		return c, g.deny(fmt.Sprintf("sent %.40q", sql))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.Session && g.c.store.pooled.Load() {
		if g.ended == nil {
			g.ended = fmt.Errorf("pgxstore: refused, because it would change a session of the pooler, "+
				"which other clients use: %.80q; use "+localForms, sql)
		}
		return c, g.ended
	}
	g.changed.add(c)
	return c, nil
}

// deny refuses to end the transaction.
func (g *guard) deny(how string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil {
		g.sight.denied = true
		g.ended = fmt.Errorf("%w: the handler %s; return nil to commit, an error to roll back", dedup.ErrTxEnded, how)
	}
	return g.ended
}

// localForms are the forms of statements whose effect ends with the transaction.
const localForms = "SET LOCAL, set_config(…, true), pg_advisory_xact_lock, or CREATE TEMP TABLE … ON COMMIT DROP"

// answered records the server's answer to a statement, and returns err. The tag ROLLBACK may belong to ROLLBACK TO, or
// to a prepared statement whose text check has not seen.
func (g *guard) answered(tag pgconn.CommandTag, err error) error {
	if s := tag.String(); s == "COMMIT" || s == "ROLLBACK" {
		g.suspect()
	}
	return g.failures.note(err)
}

// suspect records that the handler may do something that the guard does not see.
func (g *guard) suspect() {
	g.mu.Lock()
	g.sight.lost, g.changed.sync = true, true
	g.mu.Unlock()
}

// finish prepares the transaction for COMMIT after the handler returned nil.
func (g *guard) finish(ctx context.Context) error {
	if err := g.verifyForCommit(ctx, false); err != nil {
		return err
	}
	g.mu.Lock()
	// the handler may have used the connection since VerifyTx
	again := g.sight.exposed && !g.sight.lost && g.c.xid != ""
	g.mu.Unlock()
	if again {
		if err := g.verify(ctx, false); err != nil {
			return err
		}
	}
	g.mu.Lock()
	// pgx's Commit, which ends the handler's large objects, sends nothing else
	alone := g.changed.sync && g.sight.exposed
	g.mu.Unlock()
	if !alone || g.notBegun() || g.c.store.cfg.AllowAsyncCommit {
		return nil
	}
	if _, err := g.c.tx.Exec(ctx, g.c.store.plain.Sync, g.c.session.sync); err != nil {
		return database.Errorf("pgxstore: set synchronous_commit back: %w", err)
	}
	g.mu.Lock()
	g.changed.sync = false
	g.mu.Unlock()
	return nil
}

// leave ends the handler's use of the transaction. If the connection must not be reused, leave closes it. After a
// handler ended its transaction, the state of the connection is unknown.
func (g *guard) leave(ctx context.Context) {
	g.use.end(g.c.conn) // after a panic
	g.shut()
	g.mu.Lock()
	changed, ended := g.changed.lasting || g.failures.stalePlan(), errors.Is(g.ended, dedup.ErrTxEnded)
	g.mu.Unlock()
	if changed {
		g.c.store.warned.Do(func() {
			g.c.store.cfg.Logger.WarnContext(ctx, "pgxstore: closing a connection because the handler changed its session; "+
				"this happens after each such handler: use "+localForms)
		})
	}
	if changed || ended {
		g.c.store.discard(ctx, g.c.conn)
	}
}

// hides reports whether sql may do more, or something else, than check has found, which is c. Exec without parameters
// may send several statements in any mode. With the simple protocol every method may.
func hides(conn *pgx.Conn, c dialect.Control, args []any, exec bool) bool {
	if c.Unclear || hidesText(conn) {
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
		mode = conn.Config().DefaultQueryExecMode // Config copies everything, so it is not called for each statement
	}
	exec = exec && len(args) == 0
	return (exec || mode == pgx.QueryExecModeSimpleProtocol) && c.Several
}

// hidesText reports whether the server parses strings in another way than dialect.Inspect.
func hidesText(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("standard_conforming_strings") == "off"
}
