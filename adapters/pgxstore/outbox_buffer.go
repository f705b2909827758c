package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// In a transaction of InTx, enqueued messages wait in its guard and are written together with COMMIT. This saves a round trip.
// It also assigns their sequence numbers as late as possible: after every lock that the handler takes, before or after Enqueue.
//
// Rolling back to a savepoint must discard exactly the messages that were enqueued after it. So waiting messages are written
// before a savepoint is set. All messages that wait later were enqueued after that savepoint, and are discarded with it. When
// the handler could set savepoints without the guard's notice, messages are written at once.

// enqueue adds rows to the waiting messages. It copies the payloads, which belong to the caller.
func (t *guarded) enqueue(ctx context.Context, rows []outgoing) error {
	for i := range rows {
		rows[i].payload = slices.Clone(rows[i].payload)
	}
	return t.add(ctx, rows)
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
	g.wakeAfter(g.c.store, rows)
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
	if g.c.conn.PgConn().TxStatus() == 'E' { // the transaction can only continue from a savepoint that is older than the waiting messages
		g.mu.Lock()
		g.late.drop()
		g.mu.Unlock()
		return nil
	}
	written, err := g.c.store.write(ctx, g.c.tx, rows)
	g.mu.Lock()
	g.late.messages = g.late.messages[written:] // after an error that did not abort the transaction, the other messages still wait
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
		_ = g.failures.note(g.points.separate(g.ctx, g.c.conn.PgConn())) // an error aborts the transaction or closes the connection
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sight.lost, g.sight.exposed, g.changed.sync = true, true, true
	if err != nil && len(g.late.messages)+len(g.late.results) > 0 && g.ended == nil {
		g.ended = fmt.Errorf("pgxstore: messages were enqueued or a result was saved, and they cannot be written before the handler gets the connection: close rows before Tx.Conn: %w", err)
	}
}

// wakeUp is a notification for the relays of a Store.
type wakeUp struct {
	store  *Store
	shards []int16 // the shards that get messages; nil: any shard may
}

// wakeAfter schedules a notification to the relays of s after COMMIT, for the shards of rows. If rows is nil, it covers all
// shards.
func (g *guard) wakeAfter(s *Store, rows []outgoing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.late.wakes, func(w wakeUp) bool { return w.store == s })
	if i < 0 {
		i = len(g.late.wakes)
		g.late.wakes = append(g.late.wakes, wakeUp{s, []int16{}})
	}
	w := &g.late.wakes[i]
	of := int(s.shards.Load())
	if rows == nil || of == 0 { // the number of shards is not known before the first message is written
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

// errReturned is the error of the transaction's methods after the handler has returned.
var errReturned = fmt.Errorf("pgxstore: the handler has returned: %w", pgx.ErrTxClosed)

// shut ends the handler's use of the transaction and returns what to write with COMMIT. Without it, code that kept the
// transaction could enqueue messages that are never written, or use the connection while another message uses it. begun reports
// whether there is a transaction.
func (g *guard) shut() (late lateWrites, begun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	late, g.late = g.late, lateWrites{}
	if g.changed.sync && !g.c.store.cfg.AllowAsyncCommit {
		late.sync = g.c.session.sync
	}
	if g.ended == nil {
		g.ended = errReturned
	}
	return late, g.begin == nil
}

// lateWrites wait for COMMIT, or for the handler's next statement.
type lateWrites struct {
	statements []*pgx.QueuedQuery // see deferred.go
	deadline   time.Time          // of the handler that queued statements; zero: none
	results    []savedResult      // saved since the latest statement, see result.go
	messages   []outgoing         // enqueued since the newest savepoint
	sync       string             // the synchronous_commit for COMMIT; empty: it was not changed
	wakes      []wakeUp           // notifications to send after COMMIT
}

// writeAndCommit sends late and COMMIT in one round trip. When a statement before COMMIT fails, the server skips COMMIT, and
// the caller must roll back. After success the transaction has ended, but tx does not know that.
func (s *Store) writeAndCommit(ctx context.Context, tx pgx.Tx, late lateWrites) error {
	shards := 0
	if len(late.messages) > 0 {
		var err error
		if shards, err = s.shardsIn(ctx, tx); err != nil {
			return lostBefore(err)
		}
	}
	b := &pgx.Batch{}
	insertions := s.queueLate(b, &late, shards)
	results := tx.SendBatch(ctx, b)
	defer results.Close() // no error can follow the answer to COMMIT; after another error, this lets the connection roll back
	return s.readLate(results, &late, insertions)
}

// queueLate adds late and COMMIT to b, and returns the number of statements that insert messages.
func (s *Store) queueLate(b *pgx.Batch, late *lateWrites, shards int) (insertions int) {
	b.QueuedQueries = append(b.QueuedQueries, late.statements...)
	s.queueResults(b, late.results)
	for rows := late.messages; len(rows) > 0; insertions++ {
		n := fitting(rows)
		sql, args := s.insertion(rows[:n], shards)
		b.Queue(sql, args...)
		rows = rows[n:]
	}
	if late.sync != "" {
		b.Queue(s.plain.Sync, late.sync)
	}
	b.Queue("commit")
	return insertions
}

// readLate reads the answers to what queueLate has added.
func (s *Store) readLate(results pgx.BatchResults, late *lateWrites, insertions int) error {
	for range late.statements {
		if _, err := results.Exec(); err != nil {
			return lostWith(err)
		}
	}
	if err := s.readResults(results, late.results); err != nil {
		return lostWith(err)
	}
	for range insertions {
		if _, err := results.Exec(); err != nil {
			return lostWith(stepError("enqueue", err))
		}
	}
	if late.sync != "" {
		if _, err := results.Exec(); err != nil {
			return lostWith(err)
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return commitError(err)
}

// lostBefore classifies an error before COMMIT is sent. The code of the server's answer decides. Without one the database is at fault.
func lostBefore(err error) error {
	if errors.As(err, new(*pgconn.PgError)) || database.Caused(err) {
		return err
	}
	return database.Errorf("pgxstore: not committed: %w", err)
}

// lostWith classifies an error of a statement that was sent together with COMMIT. If the server refused the statement, it skipped COMMIT,
// and the error's code decides. If the connection was lost, the server may have committed: a pooler answers the first statement then.
func lostWith(err error) error {
	if errors.As(err, new(pgx.ErrPreprocessingBatch)) { // nothing was sent
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && severity(pg) == "ERROR" {
		return err
	}
	return unknownCommit(err)
}
