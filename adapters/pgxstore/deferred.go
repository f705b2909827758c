package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/dialect"
)

// Pipeline needs no result of its statements before COMMIT if none has a callback. For a single message it leaves them
// to the guard, which sends them together with COMMIT: the message takes a round trip less. For several messages
// Pipeline sends them itself, because it must find the message of a statement that fails.

// sendWithCommit takes the statements of b, which are sent together with COMMIT, or before the handler's next
// statement. It reports false, and takes nothing, if they must be sent at once: a callback reads a result, the guard
// does not see all that a statement does, or the pool's mode of pgx does not say which errors come before anything is
// sent.
func (t *guarded) sendWithCommit(ctx context.Context, b *pgx.Batch) bool {
	if t.nested || !t.g.c.store.describes || t.g.use.enter() != nil {
		return false
	}
	defer t.g.use.exit()
	g := t.g
	for _, q := range b.QueuedQueries {
		c := dialect.Inspect(q.SQL)
		if q.Fn != nil || c != (dialect.Control{}) || hides(g.c.conn, c, q.Arguments, false) ||
			g.c.store.enqueues(q.SQL) {
			return false
		}
		if len(q.Arguments) > 0 {
			if named, ok := q.Arguments[0].(pgx.QueryRewriter); ok {
				// its error says that nothing was sent, but not by its type
				sql, args, err := named.RewriteQuery(ctx, g.c.conn, q.SQL, q.Arguments[1:])
				if err != nil {
					return false
				}
				q.SQL, q.Arguments = sql, args
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil || g.sight.lost || len(g.late.results) > 0 ||
		g.begin == nil && g.c.conn.PgConn().TxStatus() != 'T' {
		return false
	}
	g.late.statements = append(g.late.statements, b.QueuedQueries...)
	if at, ok := ctx.Deadline(); ok {
		g.late.deadline = at
	}
	return true
}

// sendDeferred sends the deferred statements before another statement of the handler.
func (g *guard) sendDeferred(ctx context.Context) error {
	g.mu.Lock()
	statements := g.late.statements
	g.late.statements = nil
	g.mu.Unlock()
	if len(statements) == 0 {
		return nil
	}
	g.failures.touch()
	return g.failures.note(g.c.tx.SendBatch(ctx, &pgx.Batch{QueuedQueries: statements}).Close())
}

// limited returns the ctx of the round trip of l. Without statements that is COMMIT, or statements of the Store, which
// within limits and the end of ctx does not. The handler's statements may take as long as the handler may.
func (l *lateWrites) limited(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	switch {
	case len(l.statements) == 0:
		return context.WithTimeout(context.WithoutCancel(ctx), within)
	case l.deadline.IsZero():
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, l.deadline)
}

// late returns err, the error of the round trip of l, which had ctx. The time of the handler's statements is the
// handler's.
func (l *lateWrites) late(ctx context.Context, err error) error {
	if err != nil && !l.deadline.IsZero() && errors.Is(ctx.Err(), context.DeadlineExceeded) &&
		!time.Now().Before(l.deadline) {
		return fmt.Errorf("%w, with its statements and COMMIT: %w", consumer.ErrHandlerTimeout, err)
	}
	return err
}
