package driver

import (
	"context"
	"time"
)

type claimWaitKey struct{}

// WithClaimWait returns a ctx that lets a Store's claims wait d at most for transactions that hold their keys, or the
// Store's own limit if that is shorter. d must be positive. It does not limit the claim's statement itself. On MariaDB
// a claim does not wait at all for a d below a second; MySQL rounds d up to seconds.
func WithClaimWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, claimWaitKey{}, d)
}

type lockWaitsKey struct{}

// WithoutLockWaits returns a ctx that keeps the statements of InTx's fn from waiting for locks for long: a Store limits
// each wait so far below the database's limits of time that an error of class FaultTimeLimit is not due to locks. An
// error after such a wait has the class FaultContention. A Store that cannot do that ignores it.
func WithoutLockWaits(ctx context.Context) context.Context {
	return context.WithValue(ctx, lockWaitsKey{}, true)
}

// LockWaitsRefused reports whether ctx comes from WithoutLockWaits. Stores call it.
func LockWaitsRefused(ctx context.Context) bool { return ctx.Value(lockWaitsKey{}) != nil }

// ClaimWait returns the limit that WithClaimWait has set in ctx if it is shorter than own, and otherwise own. shorter
// reports whether it is the limit of ctx. Stores call it.
func ClaimWait(ctx context.Context, own time.Duration) (d time.Duration, shorter bool) {
	if d, ok := ctx.Value(claimWaitKey{}).(time.Duration); ok && d < own {
		return d, true
	}
	return own, false
}

type handlerDeadlineKey struct{}

// WithHandlerDeadline returns a ctx that carries the time when the handler's time is over. A Store that sends the
// handler's statements after the handler has returned ends them then. The consumer calls it.
func WithHandlerDeadline(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, handlerDeadlineKey{}, at)
}

// HandlerDeadline returns the time of WithHandlerDeadline. Stores call it.
func HandlerDeadline(ctx context.Context) (at time.Time, ok bool) {
	at, ok = ctx.Value(handlerDeadlineKey{}).(time.Time)
	return at, ok
}

type lateClaimKey struct{}

// A LateClaimer is a Store that can claim together with what fn of InTx writes; see WithLateClaim. Without it,
// consumer.New refuses Config.ClaimLate.
type LateClaimer interface {
	// ClaimsLate reports whether the Store's settings let it do so.
	ClaimsLate() bool
}

// WithLateClaim returns a ctx with which InTx of a LateClaimer may call fn before it claims, with the answer First, so
// that the claim travels with what fn writes. If that was wrong, nothing of fn is committed. InTx then calls wrong,
// claims as always, and calls fn again if it has an answer. So fn may have no effect outside of its transaction, and it
// also runs for duplicates. A Store that is no LateClaimer claims first. It is for a single record.
func WithLateClaim(ctx context.Context, wrong func()) context.Context {
	return context.WithValue(ctx, lateClaimKey{}, wrong)
}

// LateClaim returns wrong of WithLateClaim; nil: ctx does not come from there. Stores call it.
func LateClaim(ctx context.Context) (wrong func()) {
	wrong, _ = ctx.Value(lateClaimKey{}).(func())
	return wrong
}
