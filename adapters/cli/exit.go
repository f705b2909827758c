package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// The exit codes.
const (
	ExitFine    = 0
	ExitFinding = 1 // check or audit has found something, an audit had nothing to compare, or letters failed
	ExitUsage   = 2
	// the database or a broker cannot be reached or does not answer as it should, or the output cannot be written
	ExitUnreachable = 3
	ExitRefused     = 4 // nothing was done: the request needs a decision, a confirmation or another schema
	ExitInterrupted = 5
)

// coded is an error with its exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return withFlags(e.err.Error()) }
func (e *coded) Unwrap() error { return e.err }

// Usage marks an error of Config.Open as one of how the command was called.
func Usage(err error) error { return &coded{ExitUsage, err} }

func refused(format string, args ...any) error {
	return &coded{ExitRefused, fmt.Errorf(format, args...)}
}

func interrupted(what string) error {
	return &coded{ExitInterrupted, fmt.Errorf("interrupted: %s", what)}
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
	case errors.As(err, new(*fs.PathError)): // of writing the output
		return ExitUnreachable
	}
	return ExitUsage
}

// classify gives an error of the work on a database its exit code. ctx is that of the command; timeout is that of one
// request.
func classify(ctx context.Context, timeout time.Duration, err error) error {
	if err == nil || errors.As(err, new(*coded)) {
		return err
	}
	code := ExitUnreachable
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = ExitInterrupted
		if err == ctx.Err() { //nolint:errorlint // not if it says what was done
			err = errors.New("interrupted")
		}
	case isRefusal(err):
		code = ExitRefused
		if errors.Is(err, dedup.ErrSchema) {
			err = fmt.Errorf("%w; see txonce migrate status", err)
		}
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v (--timeout): %w", timeout, err)
	}
	return &coded{code, err}
}

func isRefusal(err error) bool {
	for _, refusal := range []error{
		ops.ErrExpected, ops.ErrNoAction, consumer.ErrNotParked, migrations.ErrNewer,
		dedup.ErrSchema, dedup.ErrAccess, dedup.ErrSettings, dedup.ErrNotDurable, dedup.ErrNoKey, dedup.ErrBadKey,
		dedup.ErrClock,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	type postgres interface {
		error
		SQLState() string
	}
	answer, ok := errors.AsType[postgres](err)
	// permission denied; read-only, as a standby is
	return ok && (answer.SQLState() == "42501" || answer.SQLState() == "25006")
}
