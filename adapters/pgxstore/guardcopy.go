package pgxstore

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/usercode"
)

// copySource is the handler's source of the rows of a COPY. pgx calls it on a goroutine of its own, where a panic would
// end the process, and the end of that goroutine would leave the COPY waiting for ever.
type copySource struct {
	pgx.CopyFromSource
	ended error // how a call ended; read when pgx's CopyFrom has returned

	row []any // what Values returns
	err error
}

// Next reads the row, too: one goroutine for both calls.
func (s *copySource) Next() (more bool) {
	s.row, s.err = nil, errCopyEnded // if the source ends, Values returns this error
	s.call(func() {
		if more = s.CopyFromSource.Next(); more {
			s.row, s.err = s.CopyFromSource.Values()
		}
	})
	return more
}

func (s *copySource) Values() (row []any, err error) { return s.row, s.err }

func (s *copySource) Err() (err error) {
	if s.ended != nil {
		return errCopyEnded
	}
	err = errCopyEnded
	s.call(func() { err = s.CopyFromSource.Err() })
	return usercode.Error(err)
}

// errCopyEnded ends the COPY.
var errCopyEnded = errors.New("the source of the rows panicked, or ended its goroutine")

func (s *copySource) call(f func()) {
	switch ended := usercode.Run(f); {
	case ended == nil:
	case ended.Value != nil:
		s.ended = &consumer.PanicError{Value: ended.Value, Stack: ended.Stack}
	default:
		s.ended = ended.Of("pgxstore: CopyFrom: the source of the rows")
	}
}
