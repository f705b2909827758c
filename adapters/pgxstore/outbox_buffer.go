package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/claims"
)

// In a transaction of InTx messages wait in its guard, and travel with COMMIT. That spares them a round trip, and gives them
// their sequence numbers as late as possible: after every lock that the handler takes, before or after Enqueue.
//
// A savepoint that is rolled back must take back what was enqueued since, and nothing else. So whatever waits is written
// before a savepoint is set: what waits was then always enqueued since the newest one, and goes with it. Where savepoints
// may be set unseen, nothing waits any more.

// enqueue takes rows in, of messages that are the caller's.
func (t *guarded) enqueue(ctx context.Context, rows []outgoing) error {
	g := t.g
	if err := g.refused(); err != nil {
		return err
	}
	if t.closed {
		return pgx.ErrTxClosed
	}
	if g.conn.IsClosed() || g.conn.PgConn().TxStatus() == 'E' {
		return g.aborted(errAborted)
	}
	for i := range rows {
		rows[i].payload = slices.Clone(rows[i].payload)
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, rows...)
	unverified := g.unverified
	g.mu.Unlock()
	g.wakeAfter(g.store, rows)
	if unverified {
		return g.flush(ctx)
	}
	return nil
}

var errAborted = errors.New("pgxstore: enqueue: a statement failed in this transaction")

// flush writes what waits, without another round trip to spare.
func (g *guard) flush(ctx context.Context) error {
	g.mu.Lock()
	rows := g.waiting
	g.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	if g.conn.PgConn().TxStatus() == 'E' { // only a savepoint from before what waits can heal that
		g.drop()
		return nil
	}
	written, err := g.store.write(ctx, g.tx, rows)
	g.mu.Lock()
	g.waiting = g.waiting[written:] // after an error that left the transaction as it was, the others wait on
	g.mu.Unlock()
	return g.note(err)
}

// drop forgets what waits, after it was rolled back.
func (g *guard) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = nil
}

// expose is called when the handler gets the connection itself, on which it can do anything unseen.
func (g *guard) expose() {
	err := g.flush(g.ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unverified, g.exposed = true, true
	if err != nil && len(g.waiting) > 0 && g.ended == nil {
		g.ended = fmt.Errorf("pgxstore: messages were enqueued, and cannot be written before the handler gets the connection: close rows before Tx.Conn: %w", err)
	}
}

// wakeUp is for the relays of a Store.
type wakeUp struct {
	store  *Store
	shards []int16 // that get messages; nil: any may
}

// wakeAfter has the relays of s woken after COMMIT, because of rows; nil: of whatever was enqueued.
func (g *guard) wakeAfter(s *Store, rows []outgoing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.wakes, func(w wakeUp) bool { return w.store == s })
	if i < 0 {
		i = len(g.wakes)
		g.wakes = append(g.wakes, wakeUp{s, []int16{}})
	}
	w := &g.wakes[i]
	of := int(s.shards.Load())
	if rows == nil || of == 0 { // not known before the first message is written
		w.shards = nil
	}
	for j := range rows {
		if w.shards == nil {
			return
		}
		if n := rows[j].shard(of); !slices.Contains(w.shards, n) {
			w.shards = append(w.shards, n)
		}
	}
}

// errOver is what a handler's transaction answers after the handler has returned.
var errReturned = fmt.Errorf("pgxstore: the handler has returned: %w", pgx.ErrTxClosed)

// shut ends the handler's use of the transaction, and returns what is to be written with COMMIT. Whoever still has the
// transaction could otherwise enqueue what nobody writes, and reach the connection's next user.
func (g *guard) shut() (waiting []outgoing, wakes []wakeUp) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting, wakes = g.waiting, g.wakes
	g.waiting, g.wakes = nil, nil
	if g.ended == nil {
		g.ended = errReturned
	}
	return waiting, wakes
}

// writeAndCommit sends rows and COMMIT in one round trip. When a statement before COMMIT fails, the server skips COMMIT; it
// is for the caller to roll back. After nil the transaction is over, and tx does not know.
func (s *Store) writeAndCommit(ctx context.Context, tx pgx.Tx, rows []outgoing) error {
	shards, err := s.shardsIn(ctx, tx)
	if err != nil {
		return lostBefore(err)
	}
	b := &pgx.Batch{}
	for len(rows) > 0 {
		n := fitting(rows)
		sql, args := s.insertion(rows[:n], shards)
		b.Queue(sql, args...)
		rows = rows[n:]
	}
	insertions := b.Len()
	b.Queue(`commit`)
	results := tx.SendBatch(ctx, b)
	defer results.Close() // after the answer to COMMIT it has nothing to add
	for range insertions {
		if _, err := results.Exec(); err != nil {
			results.Close() // reads on, so that the connection can roll back
			return lostBefore(s.stepError("enqueue", err))
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return commitError(err)
}

// lostBefore says of an error before COMMIT that the database was at fault, unless it is the database's answer, whose code
// decides: then there was no COMMIT. Otherwise there may have been one, as it was on its way too.
func lostBefore(err error) error {
	if errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(claims.DatabaseError)) {
		return err
	}
	return claims.DatabaseErrorf("pgxstore: commit: %w", err)
}
