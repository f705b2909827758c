package pgxstore

import (
	"errors"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
)

// copySource is the handler's source of the rows of a COPY. pgx calls it on a goroutine of its own, where a panic would end the process.
type copySource struct {
	pgx.CopyFromSource
	panicked error // a *consumer.PanicError; read when pgx's CopyFrom has returned
}

func (s *copySource) Next() (more bool) {
	defer s.recover()
	return s.CopyFromSource.Next()
}

func (s *copySource) Values() (row []any, err error) {
	err = errCopyPanicked // Values returns this error if the source panics
	defer s.recover()
	return s.CopyFromSource.Values()
}

func (s *copySource) Err() (err error) {
	if s.panicked != nil {
		return errCopyPanicked
	}
	err = errCopyPanicked
	defer s.recover()
	return s.CopyFromSource.Err()
}

// errCopyPanicked ends the COPY.
var errCopyPanicked = errors.New("the source of the rows panicked")

func (s *copySource) recover() {
	if v := recover(); v != nil {
		s.panicked = &consumer.PanicError{Value: v, Stack: debug.Stack()}
	}
}
