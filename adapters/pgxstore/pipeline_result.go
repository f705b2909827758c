package pgxstore

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
	"github.com/txonce/txonce/consumer"
)

// queuedResult is the result of one queued statement. pgx would let a callback read the results of other statements
// too, and would report an error that a callback ignores with the next statement.
type queuedResult struct {
	from  pgx.BatchResults
	taken bool
	rows  pgx.Rows // nil: none
	err   error    // of the statement
	early error    // of SendBatch, or the first answer to the statement
}

var _ pgx.BatchResults = (*queuedResult)(nil)

var errOneResult = errors.New("pgxstore: Pipeline: the callback has read the result of its statement already")

// read calls fn, which may be nil, and returns its error or that of the statement. It reads what fn leaves.
func (r *queuedResult) read(fn func(pgx.BatchResults) error) error {
	defer r.close() // also if fn panics
	if fn != nil {
		if err := fn(r); err != nil {
			return err
		}
	}
	r.close()
	return r.err
}

func (r *queuedResult) close() {
	if !r.taken {
		_, _ = r.Exec()
	}
	if r.rows != nil {
		r.rows.Close()
		r.err = r.rows.Err()
	}
}

func (r *queuedResult) Exec() (pgconn.CommandTag, error) {
	if r.taken {
		return pgconn.CommandTag{}, errOneResult
	}
	r.taken = true
	var tag pgconn.CommandTag
	tag, r.err = r.from.Exec()
	r.early = r.err
	return tag, r.err
}

func (r *queuedResult) Query() (pgx.Rows, error) {
	if r.taken {
		return pgxrows.Failed{Error: errOneResult}, errOneResult
	}
	r.taken = true
	r.rows, r.err = r.from.Query()
	r.early = r.err
	return r.rows, r.err
}

func (r *queuedResult) QueryRow() pgx.Row {
	rows, _ := r.Query()
	return pgxrows.First{Rows: rows}
}

func (r *queuedResult) Close() error {
	r.close()
	return r.err
}

func (r *queuedResult) Tx() pgx.Tx { return nil }

// unsentError says which statement of a batch the guard has refused. None was sent.
type unsentError struct {
	error
	at int
}

func (e *unsentError) Unwrap() error { return e.error }

// culprit returns the message that err, the first error after SendBatch, belongs to; nil: unknown.
func (q *queue) culprit(err error) *consumer.Message {
	if refused, ok := errors.AsType[*unsentError](err); ok {
		return q.owners[refused.at].msg
	}
	unsent, isUnsent := errors.AsType[pgx.ErrPreprocessingBatch](err)
	if !isUnsent && errors.As(err, new(*pgconn.PgError)) { // the server's answer to the first statement
		return q.owners[0].msg
	}
	var found *consumer.Message
	for i, query := range q.batch.QueuedQueries {
		msg := q.owners[i].msg
		if len(query.Arguments) > 0 {
			if _, ok := query.Arguments[0].(pgx.QueryRewriter); ok {
				// pgx replaces one after the other, and has stopped here
				return msg
			}
		}
		switch {
		case !isUnsent || query.SQL != unsent.SQL():
		case found == nil:
			found = msg
		case found != msg && isUnencodable(err): // pgx does not say whose argument
			return nil
		}
	}
	return found
}

// isUnencodable reports whether an argument of a batch could not be encoded. pgx then closes the connection, but that
// is the handler's fault.
func isUnencodable(err error) bool {
	unsent, ok := errors.AsType[pgx.ErrPreprocessingBatch](err)
	return ok && strings.HasPrefix(unsent.Error(), "error preprocessing batch (build)")
}
