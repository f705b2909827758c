package dedup

import (
	"context"
	"time"
)

type claimWaitKey struct{}

// WithClaimWait returns a ctx under which a Store's claims wait no longer than d for transactions that hold their keys, where
// the Store's own limit is longer. d must be positive. It does not bound the claim's statement itself: a claim that meets no held key
// takes as long as it takes. MariaDB, which counts
// such waits in seconds, does not wait then; MySQL waits a second.
func WithClaimWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, claimWaitKey{}, d)
}

// ClaimWait is for stores: it returns what WithClaimWait said, or own where that is shorter or nothing was said. shorter reports the
// former.
func ClaimWait(ctx context.Context, own time.Duration) (d time.Duration, shorter bool) {
	if d, ok := ctx.Value(claimWaitKey{}).(time.Duration); ok && d < own {
		return d, true
	}
	return own, false
}
