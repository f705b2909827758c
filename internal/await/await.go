// Package await waits for a while, or until a context ends.
package await

import (
	"context"
	"time"
)

// Sleep returns nil after d, or ctx.Err() when ctx ends first. It returns at once when d is zero or negative, and then
// also reports whether ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
