package interleave

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// readBatch is the results of a batch as pgx.BatchResults.
type readBatch struct {
	handler *handler
	queries []*pgx.QueuedQuery
	results []*result
	next    int
	rows    pgx.Rows // of the latest Query
	err     error
	ended   bool
	closed  func()
}

var _ pgx.BatchResults = (*readBatch)(nil)

// take returns the next result.
func (b *readBatch) take() (*result, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case b.ended:
		return nil, errors.New("batch already closed")
	case b.next == len(b.results):
		return nil, errors.New("no more results in batch")
	}
	if err := b.leave(); err != nil {
		return nil, err
	}
	b.next++
	return b.results[b.next-1], nil
}

// leave closes the rows of the latest Query.
func (b *readBatch) leave() error {
	if b.rows != nil {
		b.rows.Close()
		b.err = b.rows.Err()
		b.rows = nil
	}
	return b.err
}

func (b *readBatch) Exec() (pgconn.CommandTag, error) {
	r, err := b.take()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return r.tag, nil
}

func (b *readBatch) Query() (pgx.Rows, error) {
	r, err := b.take()
	if err != nil {
		return pgxrows.Failed{Error: err}, err
	}
	b.rows = r.rows(b.handler)
	return b.rows, nil
}

func (b *readBatch) QueryRow() pgx.Row {
	rows, _ := b.Query()
	return pgxrows.First{Rows: rows}
}

// Close calls the callbacks of the results that were not read.
func (b *readBatch) Close() error {
	if b.ended {
		return b.err
	}
	defer func() { // also if a callback panics
		b.ended = true
		b.closed()
	}()
	err := b.leave()
	for err == nil && b.next < len(b.results) {
		if fn := b.queries[b.next].Fn; fn != nil {
			err = fn(b)
		} else {
			_, err = b.Exec()
		}
	}
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		_ = b.leave()
	}
	return b.err
}

func (b *readBatch) Tx() pgx.Tx { return nil }
