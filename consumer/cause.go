package consumer

import (
	"context"
	"errors"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// cause names the cause of err, an error of a transaction or of the call that began it. It is empty if err is nil.
func (c *Consumer[TTx]) cause(err error) observe.Cause {
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
	case c.cfg.Store.Retryable(err):
		return observe.CauseDatabase
	}
	return observe.CauseHandler
}

// causeIn is cause, but after the end of ctx that is the cause, whatever the error looks like.
func (c *Consumer[TTx]) causeIn(ctx context.Context, err error) observe.Cause {
	if err != nil && ctx.Err() != nil {
		return observe.CauseCancelled
	}
	return c.cause(err)
}

// result names how a transaction ended that InTx answered with err.
func (c *Consumer[TTx]) result(err error) observe.Result {
	if err == nil {
		return observe.Committed
	}
	if classifier, ok := c.cfg.Store.(driver.ResultClassifier); ok {
		return classifier.Result(err)
	}
	if _, inDoubt := errors.AsType[*dedup.InDoubtError](err); inDoubt {
		return observe.CommitUnknown
	}
	return observe.RolledBack
}
