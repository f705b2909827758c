package awssqs

import (
	"log/slog"
	"sync"
	"time"
)

// fatalAfter is how long SQS must refuse this client until Run gives up. Run does not give up at once, because changed permissions and
// credentials take time to become effective.
const fatalAfter = 30 * time.Second

// outage is a period during which all calls of one operation fail. Its beginning and its end are logged.
type outage struct {
	op  string
	log *slog.Logger

	mu         sync.Mutex
	since      time.Time // zero: there is none
	fatalSince time.Time // since when all errors are fatal; zero: the last one was not
	worked     bool      // at least one call succeeded
}

// failed records an error. It reports whether Run must give up.
func (o *outage) failed(err error) (giveUp bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
		o.log.Warn("awssqs: trouble with SQS; trying again", "operation", o.op, "error", err)
	}
	if !fatal(err) {
		o.fatalSince = time.Time{}
		return false
	}
	if o.fatalSince.IsZero() {
		o.fatalSince = now
	}
	return !o.worked || now.Sub(o.fatalSince) >= fatalAfter
}

// succeeded records a success.
func (o *outage) succeeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worked = true
	if !o.since.IsZero() {
		o.log.Info("awssqs: SQS answers again", "operation", o.op, "after", time.Since(o.since).Round(time.Millisecond))
		o.since, o.fatalSince = time.Time{}, time.Time{}
	}
}
