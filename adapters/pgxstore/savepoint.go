package pgxstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A handler may leave a savepoint set. If a later handler of the batch rolled back to it, the effects of all handlers
// between them would be undone, and their claims would not. So the Store sets a savepoint of its own before the first
// statement of a transaction that may set one, and renews it after each handler that may have set others: releasing it
// also releases all later savepoints. A handler that uses no savepoints, or only those of pgx's Tx.Begin, costs no
// round trip.

const (
	setSavepoint     = `SAVEPOINT txonce_handler`
	releaseSavepoint = `RELEASE SAVEPOINT txonce_handler`
)

// errUndone is not ErrTxEnded, because the transaction of the claim is still open.
var errUndone = errors.New("pgxstore: rolled back: the handler rolled back to a savepoint of an earlier handler, or released it, " +
	"which would undo the work of other messages: roll back only to savepoints that the same handler has set")

// savepoints knows the savepoints of a transaction.
type savepoints struct {
	shared bool // several handlers may use the transaction

	mu        sync.Mutex
	moved     bool       // since the last verification the handler may have set a savepoint, or rolled back to one
	separated bool       // the Store's own savepoint is set
	within    int        // how many of nested were open then
	nested    []*guarded // savepoints that Begin has set and that are still open, oldest first
}

// separate is called before a statement that may set a savepoint or roll back to one.
func (p *savepoints) separate(ctx context.Context, conn *pgconn.PgConn) error {
	if !p.shared {
		return nil
	}
	p.mu.Lock()
	p.moved = true
	ready := p.separated || conn.IsClosed() || conn.TxStatus() != 'T' // an aborted transaction sets no savepoints
	p.mu.Unlock()
	if ready {
		return nil
	}
	if _, err := conn.Exec(ctx, setSavepoint).ReadAll(); err != nil {
		return err
	}
	p.mu.Lock()
	p.separated, p.within = true, len(p.nested)
	p.mu.Unlock()
	return nil
}

// opened records that Begin has set the savepoint of t.
func (p *savepoints) opened(t *guarded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nested = append(p.nested, t)
}

// closed records that the savepoint of t was released or rolled back to. All later savepoints end with it.
func (p *savepoints) closed(t *guarded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.nested, t); i >= 0 {
		p.nested = p.nested[:i]
		p.separated = p.separated && p.within <= i
	}
}

// release releases the savepoints that a handler left set with Begin, unless they end with the Store's own savepoint.
func (p *savepoints) release(ctx context.Context) error {
	p.mu.Lock()
	open := p.nested
	p.nested = nil
	follows := p.separated && p.within == 0
	if len(open) > 0 {
		p.separated = follows
	}
	p.mu.Unlock()
	for _, t := range open {
		t.closed = true
	}
	if len(open) == 0 || follows {
		return nil
	}
	if err := open[0].Tx.Commit(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// queue adds statements to b that release the Store's own savepoint, and with it all later ones. If renew is true, and
// several handlers may use the transaction, another statement sets it again. If all succeed, call renewed.
func (p *savepoints) queue(b *pgx.Batch, renew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.separated {
		b.Queue(releaseSavepoint)
	}
	if renew && p.shared {
		b.Queue(setSavepoint)
	}
}

func (p *savepoints) renewed(renew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.separated = renew && p.shared; p.separated {
		p.within = 0
	}
}

// mayHave reports whether the handler may have set savepoints that the guard does not know.
func (p *savepoints) mayHave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
}

// verified records that there are none.
func (p *savepoints) verified() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = false
}

func isNoSavepoint(err error) bool { return sqlState(err) == "3B001" }
