package pgxstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

var _ dedup.Sequencer[pgx.Tx] = (*Store)(nil)

// Sequence implements dedup.Sequencer. BEGIN and the claim of the next call travel with COMMIT. They follow a Sync of their own, so the
// server answers COMMIT before it waits for a transaction that holds the next key. The tracer of the pool does not see the statements
// that travel together.
//
// COMMIT travels without the next claim behind a pooler, above READ COMMITTED, when it waits for standbys, and when the pool has another pgx
// mode than the default or a hook that runs between two uses of a connection. The same applies after a handler that used the connection
// itself, changed its session, enqueued messages or saved results, and before a message that is probably a duplicate or that is older than
// half an hour, because its claim reads the horizon.
func (s *Store) Sequence() dedup.Sequence[pgx.Tx] { return &sequence{store: s} }

// sequence runs transactions one after the other. A nil sequence runs one.
type sequence struct {
	store *Store
	sent  *sentClaim // nil: no claim was sent with the last COMMIT

	// Of the current call of InTx.
	next     []dedup.Record // what to claim together with COMMIT
	conn     *pgxpool.Conn
	prepared *chained // on conn; nil: COMMIT travels alone
}

// InTx implements dedup.Sequence.
func (q *sequence) InTx(ctx context.Context, recs, next []dedup.Record, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	if q.sent != nil && !slices.EqualFunc(q.sent.recs, recs, alike) {
		q.Close()
	}
	q.next = next
	return q.store.repeat(ctx, recs, q, fn)
}

// alike reports whether a claim of r answers s.
func alike(r, s dedup.Record) bool {
	r.Redelivered = s.Redelivered // this does not change the answer
	return r == s
}

// Close implements dedup.Sequence. It closes the connection of a claim that was sent, because that claim may wait for another transaction.
func (q *sequence) Close() {
	if sent := q.take(); sent != nil {
		sent.drop()
		sent.conn.Release()
	}
}

func (q *sequence) take() *sentClaim {
	if q == nil {
		return nil
	}
	sent := q.sent
	q.sent = nil
	return sent
}

// use sets the connection of the current call of InTx. No transaction is open yet.
func (q *sequence) use(ctx context.Context, conn *pgxpool.Conn) {
	if q == nil {
		return
	}
	q.conn, q.prepared = conn, nil
	if len(q.next) == 1 && q.store.chainable && !q.store.pooled.Load() {
		q.prepared = q.store.prepare(ctx, conn.Conn().PgConn())
	}
}

// keeps reports whether a claim was sent on conn and not answered yet.
func (q *sequence) keeps(conn *pgxpool.Conn) bool {
	return q != nil && q.sent != nil && q.sent.conn == conn
}

// follow returns the claim of next, which may travel with the COMMIT of c, or nil: then COMMIT travels alone.
func (q *sequence) follow(ctx context.Context, c *claim, g *guard, late lateWrites) *claim {
	if q == nil || q.prepared == nil || c.standbys || len(late.messages)+len(late.results) > 0 || !g.traceless() {
		return nil
	}
	plan, err := claims.NewPlan(q.next)
	if err != nil || q.next[0].Redelivered || q.store.repeats.likely() { // it is probably a duplicate, which one query finds
		return nil
	}
	if _, short := dedup.ClaimWait(ctx, q.store.cfg.ClaimTimeout); short {
		return nil
	}
	soon := q.store.now().Add(dedup.MinWindow / 2)
	if len(q.store.windowLeases.Due(plan.Windows(), time.Now())) > 0 || !claims.Young(plan.Rows[0].Record.Time, soon) {
		return nil
	}
	next := q.store.newClaim(plan)
	next.conn, next.tx, next.idleLimit = c.conn, c.tx, q.store.idle
	return next
}

// traceless reports whether the handler has left nothing behind that matters after COMMIT.
func (g *guard) traceless() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.exposed && !g.unverified && !g.changed && !g.resync
}
