package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// The exit codes.
const (
	ExitFine        = 0
	ExitFinding     = 1 // check or audit has found something, or letters failed
	ExitUsage       = 2
	ExitUnreachable = 3 // the database, or a broker, cannot be reached or does not answer as it should
	ExitRefused     = 4 // nothing was done: the request needs a decision, a confirmation or another schema
	ExitInterrupted = 5
)

// coded is an error with its exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// Usage marks an error of Config.Open as one of how the command was called.
func Usage(err error) error { return &coded{ExitUsage, err} }

func usage(err error) error { return Usage(err) }

func refused(format string, args ...any) error {
	return &coded{ExitRefused, fmt.Errorf(format, args...)}
}

func finding(format string, args ...any) error {
	return &coded{ExitFinding, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code for the error of a command that New has returned. Errors of cobra itself are of usage.
func ExitCode(err error) int {
	var c *coded
	switch {
	case err == nil:
		return ExitFine
	case errors.As(err, &c):
		return c.code
	}
	return ExitUsage
}

// classify gives an error of the work on a database its exit code.
func classify(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(*coded)) {
		return err
	}
	code := ExitUnreachable
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = ExitInterrupted
	case isRefusal(err):
		code = ExitRefused
	}
	return &coded{code, err}
}

func isRefusal(err error) bool {
	for _, refusal := range []error{
		ops.ErrExpected, ops.ErrNoAction, consumer.ErrNotParked, migrations.ErrNewer,
		dedup.ErrSchema, dedup.ErrAccess, dedup.ErrNotDurable, dedup.ErrNoKey, dedup.ErrBadKey, dedup.ErrClock,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
