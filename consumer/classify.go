package consumer

import (
	"context"
	"errors"
	"slices"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/observe"
)

// classifier finds out what kind of failure an error is. Nothing else asks the store about errors.
type classifier struct {
	store  interface{ Retryable(err error) bool }
	faults driver.FaultClassifier // nil: the store tells no more than Retryable
}

func newClassifier[TTx any](store dedup.Store[TTx]) classifier {
	c := classifier{store: store}
	c.faults, _ = store.(driver.FaultClassifier)
	return c
}

// failure returns what is known about a transaction that failed with err. The outcome is unknown to decide.Failure,
// whatever else err says, if a handler may have committed the transaction.
func (c classifier) failure(ctx context.Context, err error) decide.Failure {
	is := func(target error) bool { return errors.Is(err, target) }
	_, refused := errors.AsType[*refusal](err)
	_, panicked := errors.AsType[*PanicError](err)
	_, maybe := errors.AsType[*dedup.InDoubtError](err)
	f := decide.Failure{
		Cause: c.cause(err), Cancelled: ctx.Err() != nil,
		InFlight: is(dedup.ErrInFlight), Refused: refused, Late: is(ErrHandlerTimeout), Panic: panicked,
		Clocks:    is(dedup.ErrClocks),
		Permanent: IsPermanent(err) || unretryable(err),
		Ended:     is(dedup.ErrTxEnded), RolledBack: is(dedup.ErrRolledBack), Maybe: maybe,
		Database: c.store.Retryable(err),
	}
	if asked, asks := errors.AsType[*RetryError](err); asks {
		f.Asked, f.Held, f.After = true, asked.Held, max(asked.After, 0)
	}
	if f.Database {
		f.Unnamed = c.faults == nil
		f.Ambiguous = c.faults != nil && c.faults.Ambiguous(err)
		f.Class, f.Counts = c.fault(err, f.Ambiguous)
	}
	return f
}

// fault returns the class of err, an error of the database, and from when on it counts.
func (c classifier) fault(err error, ambiguous bool) (driver.FaultClass, faults.Verdict) {
	class := driver.FaultConnection
	if c.faults != nil {
		class = c.faults.FaultClass(err)
	}
	switch {
	case class == driver.FaultContention || class == driver.FaultTimeLimit || class == driver.FaultIdleLimit:
		return class, faults.Any.After(class, faults.Handler)
	case ambiguous:
		return class, faults.Any.After(driver.FaultDeployment, faults.Handler)
	}
	return class, faults.Any.After(driver.FaultConnection, faults.Handler)
}

// unretryable reports an error of the store that another attempt would repeat or make worse: after ErrTxEnded, each
// attempt may leave effects behind.
func unretryable(err error) bool {
	return slices.ContainsFunc([]error{
		dedup.ErrTxEnded, dedup.ErrKeyCollision, dedup.ErrBadKey, dedup.ErrNoKey,
		dedup.ErrFuture,
	},
		func(e error) bool { return errors.Is(err, e) })
}

// cause names the cause of err, an error of a transaction or of the call that began it. It is empty if err is nil.
func (c classifier) cause(err error) observe.Cause {
	refused, isRefused := errors.AsType[*refusal](err)
	_, panicked := errors.AsType[*PanicError](err)
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return ""
	case is(ErrHandlerTimeout):
		return observe.CauseHandler
	case is(dedup.ErrInFlight):
		return observe.CauseInFlight
	case isRefused:
		return refused.cause
	case is(ErrParkLimit):
		return observe.CauseBudget
	case panicked:
		return observe.CausePanic
	case is(dedup.ErrTxEnded), is(ErrOutcomeUnknown):
		return observe.CauseUnknown
	case is(dedup.ErrMismatch):
		return observe.CauseMismatch
	case is(dedup.ErrUnprovable):
		return observe.CauseUnprovable
	case is(ErrKnownContent):
		return observe.CauseKnownContent
	case is(dedup.ErrNoKey), is(dedup.ErrBadKey):
		return observe.CauseNoKey
	case is(ErrShortened):
		return observe.CauseUndecodable
	case is(ErrClosed):
		return observe.CauseCancelled
	case c.store.Retryable(err):
		return observe.CauseDatabase
	}
	return observe.CauseHandler
}

// causeIn is cause, but after the end of ctx that is the cause, whatever the error looks like.
func (c classifier) causeIn(ctx context.Context, err error) observe.Cause {
	if err != nil && ctx.Err() != nil {
		return observe.CauseCancelled
	}
	return c.cause(err)
}

// result names how a transaction ended that InTx answered with err.
func (c classifier) result(err error) observe.Result {
	if err == nil {
		return observe.Committed
	}
	if c.faults != nil {
		return c.faults.Result(err)
	}
	if _, inDoubt := errors.AsType[*dedup.InDoubtError](err); inDoubt {
		return observe.CommitUnknown
	}
	return observe.RolledBack
}

// refusesLetter reports whether err, of a transaction that was to park a letter, is about this letter alone: another
// attempt would repeat it, and other letters are not concerned.
func (c classifier) refusesLetter(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || c.store.Retryable(err) {
		return false
	}
	for _, other := range []error{
		dedup.ErrInFlight, dedup.ErrSchema, dedup.ErrAccess, dedup.ErrSettings, dedup.ErrNotDurable, dedup.ErrNameTaken,
		dedup.ErrClock,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return c.faults == nil || c.faults.FaultClass(err) == driver.FaultUnknown || c.refusesData(err)
}

// refusesData reports whether the database refuses the values of a statement.
func (c classifier) refusesData(err error) bool {
	return c.faults != nil && c.faults.FaultClass(err) == driver.FaultData
}
