package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// In a transaction of InTx, enqueued messages wait in its guard and are written together with COMMIT. This saves a
// round trip. It also assigns their sequence numbers as late as possible: after every lock that the handler takes,
// before or after Enqueue.
//
// Rolling back to a savepoint must discard exactly the messages that were enqueued after it. So waiting messages are
// written before a savepoint is set. All messages that wait later were enqueued after that savepoint, and are discarded
// with it. When the handler could set savepoints without the guard's notice, messages are written at once.

// enqueue adds rows to the waiting messages. It copies the payloads, which belong to the caller.
func (t *guarded) enqueue(ctx context.Context, rows []outgoing) error {
	keep(rows)
	return t.add(ctx, rows)
}

// keep copies the payloads of rows.
func keep(rows []outgoing) {
	for i := range rows {
		rows[i].payload = slices.Clone(rows[i].payload)
	}
}

func (t *guarded) add(ctx context.Context, rows []outgoing) error {
	g := t.g
	if err := g.use.enter(); err != nil {
		return err
	}
	defer g.use.exit()
	if !g.c.early {
		g.beginOnce(ctx)
	}
	if err := g.refused(); err != nil {
		return err
	}
	if t.closed {
		return pgx.ErrTxClosed
	}
	if g.c.conn.IsClosed() || g.c.conn.PgConn().TxStatus() == 'E' {
		return g.failures.aborted(errAborted)
	}
	g.mu.Lock()
	g.late.messages = append(g.late.messages, rows...)
	lost := g.sight.lost
	g.mu.Unlock()
	g.wakeAfter(g.c.store.writer, rows)
	if lost {
		return g.flush(ctx)
	}
	return nil
}

var errAborted = errors.New("pgxstore: enqueue: a statement failed in this transaction")

// flush writes the waiting messages in a round trip of their own.
func (g *guard) flush(ctx context.Context) error {
	g.mu.Lock()
	rows := g.late.messages
	g.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	if g.c.conn.PgConn().TxStatus() == 'E' {
		// the transaction can only continue from a savepoint that is older than the waiting messages
		g.mu.Lock()
		g.late.drop()
		g.mu.Unlock()
		return nil
	}
	written, err := g.c.store.write(ctx, g.c.tx, rows)
	g.mu.Lock()
	// after an error that did not abort the transaction, the other messages still wait
	g.late.messages = g.late.messages[written:]
	g.mu.Unlock()
	return g.failures.note(err)
}

// drop discards the waiting messages after a rollback to a savepoint.
func (l *lateWrites) drop() { l.messages = nil }

// expose is called when the handler gets the connection itself. The guard does not see what the handler does with it.
func (g *guard) expose() {
	err := g.flushResults(g.ctx)
	if err == nil {
		err = g.flush(g.ctx)
	}
	if !g.c.conn.PgConn().IsBusy() { // otherwise verify sets the savepoint after this handler
		// an error aborts the transaction or closes the connection
		_ = g.failures.note(g.points.separate(g.ctx, g.c.conn.PgConn()))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sight.lost, g.sight.exposed, g.changed.sync = true, true, true
	if err != nil && len(g.late.messages)+len(g.late.results) > 0 && g.ended == nil {
		g.ended = fmt.Errorf("pgxstore: messages were enqueued or a result was saved, and they cannot be written before the handler gets the connection: close rows before Tx.Conn: %w", err)
	}
}

// wakeAfter schedules a notification to the relays of w after COMMIT, for the shards of rows. If rows is nil, it covers
// all shards.
func (g *guard) wakeAfter(w *writer, rows []outgoing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.late.wakes, func(up wakeUp) bool { return up.writer == w })
	if i < 0 {
		i = len(g.late.wakes)
		g.late.wakes = append(g.late.wakes, wakeUp{w, []int16{}})
	}
	up := &g.late.wakes[i]
	of := int(w.shards.Load())
	if rows == nil || of == 0 { // the number of shards is not known before the first message is written
		up.shards = nil
	}
	for j := range rows {
		if up.shards == nil {
			return
		}
		if n := rows[j].shard(of); !slices.Contains(up.shards, n) {
			up.shards = append(up.shards, n)
		}
	}
}

// shut ends the handler's use of the transaction and returns what to write with COMMIT. Without it, code that kept the
// transaction could enqueue messages that are never written, or use the connection while another message uses it. begun
// reports whether there is a transaction.
func (g *guard) shut() (late lateWrites, begun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	late, g.late = g.late, lateWrites{}
	if g.changed.sync && !g.c.store.cfg.AllowAsyncCommit {
		late.sync = g.c.session.sync
	}
	if g.ended == nil {
		g.ended = pgxrows.ErrReturned
	}
	return late, g.begin == nil
}
