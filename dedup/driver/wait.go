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

type lateClaimKey struct{}

// WithLateClaim returns a ctx with which InTx may call fn before it claims, with the answer First, so that the claim
// travels with what fn writes. If that was wrong, nothing of fn is committed, and InTx calls fn again with the answer
// of a claim. So fn may have no effect outside of its transaction, and it also runs for duplicates. A Store that claims
// first ignores it. It is for a single record.
func WithLateClaim(ctx context.Context) context.Context {
	return context.WithValue(ctx, lateClaimKey{}, true)
}

// LateClaim reports whether ctx comes from WithLateClaim. Stores call it.
func LateClaim(ctx context.Context) bool { return ctx.Value(lateClaimKey{}) != nil }
