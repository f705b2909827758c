package awssqs

import (
	"context"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/hooks"
)

// fatalAfter is how long SQS must refuse this client until Run gives up. Run does not give up at once, because changed
// permissions and credentials take time to become effective.
const fatalAfter = 30 * time.Second

// outage is a period when all calls of one operation fail.
type outage struct {
	op     string
	report *hooks.Pause

	mu         sync.Mutex
	fatalSince time.Time // since when all errors are fatal; zero: the last one was not
	worked     bool      // at least one call succeeded
}

// failed records an error. It reports whether Run must give up.
func (o *outage) failed(ctx context.Context, err error) (giveUp bool) {
	o.report.Failed(ctx, true, err, "operation", o.op)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !fatal(err) {
		o.fatalSince = time.Time{}
		return false
	}
	now := time.Now()
	if o.fatalSince.IsZero() {
		o.fatalSince = now
	}
	return !o.worked || now.Sub(o.fatalSince) >= fatalAfter
}

// succeeded records a success.
func (o *outage) succeeded(ctx context.Context) {
	o.report.Worked(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worked, o.fatalSince = true, time.Time{}
}
