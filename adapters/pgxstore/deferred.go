package pgxstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
)

// Pipeline needs no result of its statements before COMMIT if none has a callback. For a single message it leaves them
// to the guard, which sends them together with COMMIT: the message takes a round trip less. For several messages
// Pipeline sends them itself, because it must find the message of a statement that fails.

// sendWithCommit takes the statements of b, which are sent together with COMMIT, or before the handler's next
// statement. It reports false, and takes nothing, if they must be sent at once: a callback reads a result, another
// handler shares the transaction, the guard does not see all that a statement does, ctx has a deadline of its own, an
// argument may change or has methods that pgx calls, or the pool's mode of pgx does not say which errors come before
// anything is sent.
func (t *guarded) sendWithCommit(ctx context.Context, b *pgx.Batch) bool {
	g := t.g
	if t.nested || g.points.shared || !g.c.store.describes || g.ownDeadline(ctx) || g.use.enter() != nil {
		return false
	}
	defer g.use.exit()
	statements := make([]*pgx.QueuedQuery, 0, len(b.QueuedQueries))
	for _, q := range b.QueuedQueries {
		c := dialect.Inspect(q.SQL)
		sql, args, ok := kept(ctx, g.c.conn, q)
		if !ok || q.Fn != nil || c != (dialect.Control{}) || hides(g.c.conn, c, args, false) || g.c.store.enqueues(sql) {
			return false
		}
		statements = append(statements, &pgx.QueuedQuery{SQL: sql, Arguments: args})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil || g.sight.lost || len(g.late.results) > 0 ||
		g.begin == nil && g.c.conn.PgConn().TxStatus() != 'T' {
		return false
	}
	g.late.statements = append(g.late.statements, statements...)
	if at, ok := driver.HandlerDeadline(ctx); ok {
		g.late.deadline = at
	}
	return true
}

// ownDeadline reports whether ctx ends before the time of the handler and the ctx of InTx do: the handler has set a
// deadline for these statements, and not for COMMIT.
func (g *guard) ownDeadline(ctx context.Context) bool {
	own, ok := ctx.Deadline()
	if !ok {
		return false
	}
	limit, limited := driver.HandlerDeadline(ctx)
	whole, ends := g.ctx.Deadline()
	return !(limited && !own.Before(limit)) && !(ends && !own.Before(whole))
}

// kept returns the SQL and the arguments of q as pgx would send them now. ok is false if it cannot keep them: the
// handler may change what an argument points to, and a method of an argument may fail in any way.
func kept(ctx context.Context, conn *pgx.Conn, q *pgx.QueuedQuery) (sql string, args []any, ok bool) {
	sql, args = q.SQL, q.Arguments
	if len(args) > 0 {
		var err error
		switch named := args[0].(type) {
		case pgx.NamedArgs: // its error says that nothing was sent, but not by its type
			sql, args, err = named.RewriteQuery(ctx, conn, sql, args[1:])
		case pgx.StrictNamedArgs:
			sql, args, err = named.RewriteQuery(ctx, conn, sql, args[1:])
		}
		if err != nil {
			return "", nil, false
		}
	}
	own := make([]any, len(args))
	for i, arg := range args {
		if own[i], ok = constant(arg); !ok {
			return "", nil, false
		}
	}
	return sql, own, true
}

// constant returns a copy of arg that nothing changes. ok is false if it is none of the simple types.
func constant(arg any) (same any, ok bool) {
	switch arg := arg.(type) {
	case nil, bool, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64,
		[16]byte, time.Time, time.Duration, pgtype.UUID, pgtype.Text, pgtype.Int8, pgtype.Int4, pgtype.Timestamptz:
		return arg, true
	case []byte:
		return bytes.Clone(arg), true
	case json.RawMessage:
		return json.RawMessage(bytes.Clone(arg)), true
	}
	v := reflect.ValueOf(arg)
	if reflect.PointerTo(v.Type()).NumMethod() > 0 { // these methods include those of the type itself
		return nil, false
	}
	switch v.Kind() { // values of other kinds may change
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return arg, true
	default:
		return nil, false
	}
}

// sendDeferred sends the deferred statements before another statement of the handler. If nothing was sent, because ctx
// has ended or rows are open, they stay for COMMIT. After any other error the transaction cannot commit.
func (g *guard) sendDeferred(ctx context.Context) error {
	g.mu.Lock()
	statements := g.late.statements
	g.late.statements = nil
	g.mu.Unlock()
	if len(statements) == 0 {
		return nil
	}
	g.failures.touch()
	err := g.c.tx.SendBatch(ctx, &pgx.Batch{QueuedQueries: statements}).Close()
	if err != nil {
		g.mu.Lock()
		g.late.statements = append(statements, g.late.statements...)
		g.mu.Unlock()
	}
	return g.failures.note(err)
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
		return fmt.Errorf("%w, with its statements, which are sent with COMMIT: %w", consumer.ErrHandlerTimeout, err)
	}
	return err
}
