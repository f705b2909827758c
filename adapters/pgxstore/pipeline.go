package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/usercode"
)

// Pipeline returns a consumer.BatchHandler that calls f for each message and then sends all statements that f has
// queued in one round trip, in the order of the messages. pgx takes another round trip to prepare statements that are
// new to a connection.
//
// The statements of a message that is alone in its transaction travel with COMMIT if none has a callback, and if their
// arguments are numbers, strings, booleans, times, []byte, UUIDs ([16]byte or pgtype.UUID) or json.RawMessage. The
// BatchHandler then returns nil before they ran, and what they answer decides about the message all the same. See also
// consumer.Config.ClaimLate. A message that makes a temporary table is tried in a transaction of its own.
//
// f queues the statements of msg on b and returns without their results. To read a result, f sets a callback with
// QueuedQuery.Exec, Query or QueryRow. The result of a statement without a callback is dropped. f may queue nothing,
// and it must not use b after it has returned.
//
// If f returns nil for all messages and no statement or callback fails, all statements are committed together with the
// claims of the batch. If f returns an error, panics or calls runtime.Goexit, or if a statement or a callback fails,
// nothing is committed. The BatchHandler then returns a consumer.MessageError with the message that f was called for,
// and the consumer tries that message alone and the others without it. If pgx does not say which statement it could not
// send, the BatchHandler names no message, and the consumer tries smaller batches: in the exec and simple-protocol
// modes, and for an argument that cannot be encoded if several messages have queued the same SQL. A callback may
// therefore run several times for one message: what it changes outside of the transaction must bear that.
//
// A callback runs after the server got all statements of the batch, so f cannot queue a statement that depends on a
// result: a callback that queues one fails its message. Express that in SQL, or use a consumer.Handler. pgx prepares
// all statements before it sends the first, so a statement that uses a table that another one of the batch creates
// fails there, and succeeds alone. Config.DefaultQueryExecMode of the pool should not be the simple protocol, where pgx
// supports no callbacks on a string of several statements. In any mode, what a statement may do is as in a Handler:
// none may end the transaction. The savepoints of a message end with its statements.
//
// The batch, with all arguments, is in memory at once. A batch of 1,000 messages gains little over one of 100.
//
// f gets the outbox scope of msg in ctx. To enqueue outbox messages, call Pipeline in a BatchHandler, which has the
// transaction that Store.Enqueue needs, see the example. A statement that f sends through that transaction itself runs
// before all queued statements, also those of earlier messages with the same ordering key.
//
// A crash before COMMIT rolls back the whole batch, and its messages are delivered again. After a crash that follows
// COMMIT, the messages that are delivered again are duplicates, and f is not called for them. f runs in one goroutine,
// for one message after the other, but several batches may run at the same time: f must be safe for concurrent use.
// Pipeline panics if f is nil.
func Pipeline(f func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error) consumer.BatchHandler[pgx.Tx] {
	if f == nil {
		panic("pgxstore: Pipeline needs a function")
	}
	return func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		q := &queue{tx: tx, shared: len(msgs) > 1}
		err := q.run(func() error {
			for _, msg := range msgs {
				if err := ctx.Err(); err != nil {
					return err
				}
				q.current = msg
				own := &pgx.Batch{}
				if err := f(consumer.Scope(ctx, msg), own, msg); err != nil {
					return err
				}
				if q.shared && slices.ContainsFunc(own.QueuedQueries, makesTemporary) {
					return errAlone
				}
				q.add(msg, own)
				q.current = nil
			}
			if err := q.send(ctx); err != nil {
				return err
			}
			return q.late()
		})
		if err != nil && q.current != nil {
			err = &consumer.MessageError{Message: q.current, Err: err}
		}
		return err
	}
}

// queue collects and sends the statements of one batch of messages.
type queue struct {
	tx     pgx.Tx
	shared bool // there are several messages
	batch  pgx.Batch
	owners []owner    // of the statements of batch
	own    []ownBatch // of the messages
	// the message whose code runs or whose result is read; after an error: the one that caused it; nil: unknown
	current *consumer.Message
}

// owner says which message has queued a statement, and how its result is read.
type owner struct {
	msg  *consumer.Message
	read func(pgx.BatchResults) error // nil: nothing
}

// answers reports whether the result of the statement is read.
func (o owner) answers() bool { return o.read != nil }

// run calls do on a goroutine of its own, so that runtime.Goexit in the user's code ends only that goroutine.
func (q *queue) run(do func() error) (err error) {
	switch ended := usercode.Run(func() { err = do() }); {
	case ended == nil:
		return err
	case ended.Value != nil:
		return &consumer.PanicError{Value: ended.Value, Stack: ended.Stack}
	default:
		return ended.Of("pgxstore: Pipeline: the function")
	}
}

// A message could roll back to a savepoint of an earlier message, which would undo the effects of those between them.
// So a savepoint surrounds the statements of a message that may set savepoints: to release it also releases all later
// ones.
const (
	setMessageSavepoint     = `SAVEPOINT txonce_message`
	releaseMessageSavepoint = `RELEASE SAVEPOINT txonce_message`
)

// ownBatch is what the function has queued for one message.
type ownBatch struct {
	msg  *consumer.Message
	sent *pgxrows.SentBatches
}

// late returns an error if a callback has queued a statement.
func (q *queue) late() error {
	for _, own := range q.own {
		if err := own.sent.Check(); err != nil {
			q.current = own.msg
			return err
		}
	}
	return nil
}

func (q *queue) add(msg *consumer.Message, own *pgx.Batch) {
	sent := &pgxrows.SentBatches{}
	sent.Add(own)
	q.own = append(q.own, ownBatch{msg, sent})
	surround := q.shared && slices.ContainsFunc(own.QueuedQueries, q.moves)
	if surround {
		q.queue(owner{msg: msg}, setMessageSavepoint)
	}
	for _, query := range own.QueuedQueries {
		q.queue(owner{msg, query.Fn}, query.SQL, query.Arguments...)
	}
	if surround {
		q.queue(owner{msg, func(results pgx.BatchResults) error {
			_, err := results.Exec()
			if isNoSavepoint(err) {
				return fmt.Errorf("%w: %w", errUndone, err)
			}
			return err
		}}, releaseMessageSavepoint)
	}
}

// errAlone makes the consumer try a message without the others.
var errAlone = errors.New("pgxstore: Pipeline: a message that makes a temporary table needs a transaction of its own, " +
	"because the table may take what the other messages write")

func makesTemporary(query *pgx.QueuedQuery) bool { return dialect.Inspect(query.SQL).Temporary }

// queue queues a copy without the callback, so that BatchResults.Close runs none.
func (q *queue) queue(o owner, sql string, args ...any) {
	q.batch.Queue(sql, args...)
	q.owners = append(q.owners, o)
}

// moves reports whether a statement may set a savepoint or roll back to one.
func (q *queue) moves(query *pgx.QueuedQuery) bool {
	c := dialect.Inspect(query.SQL)
	t, ours := q.tx.(*guarded)
	return c.Savepoint || c.Unclear || c.Several || ours && hides(t.g.c.conn, c, query.Arguments, false)
}

// send sends the statements and reads their results.
func (q *queue) send(ctx context.Context) error {
	if q.batch.Len() == 0 {
		return nil
	}
	if t, ours := q.tx.(*guarded); ours && !q.shared && !slices.ContainsFunc(q.owners, owner.answers) &&
		t.sendWithCommit(ctx, &q.batch) {
		q.current = nil
		return nil
	}
	results := q.tx.SendBatch(ctx, &q.batch)
	defer results.Close() // after an error, this reads the other results
	for i, o := range q.owners {
		q.current = o.msg
		r := &queuedResult{from: results}
		err := r.read(o.read)
		if i == 0 && r.early != nil {
			q.current = q.culprit(r.early)
		}
		if err != nil {
			return err
		}
	}
	q.current = nil
	return results.Close()
}
