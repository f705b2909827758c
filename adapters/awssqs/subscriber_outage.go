package awssqs

import (
	"log/slog"
	"sync"
	"time"
)

// hopeless is how long SQS may refuse this client before Run gives up. It is not at once, because permissions and credentials take
// their time when they are changed.
const hopeless = 30 * time.Second

// outage is a time in which no call of one operation succeeds. It is logged when it begins and when it is over.
type outage struct {
	op  string
	log *slog.Logger

	mu      sync.Mutex
	since   time.Time // zero: there is none
	refused time.Time // since when all errors are final; zero: they are not
	worked  bool      // once at least
}

// begin takes note of an error. It reports whether there is no hope.
func (o *outage) begin(err error) (hopelessly bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
		o.log.Warn("awssqs: trouble with SQS; trying again", "operation", o.op, "error", err)
	}
	if !final(err) {
		o.refused = time.Time{}
		return false
	}
	if o.refused.IsZero() {
		o.refused = now
	}
	return !o.worked || now.Sub(o.refused) >= hopeless
}

// over takes note of a success.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worked = true
	if !o.since.IsZero() {
		o.log.Info("awssqs: SQS answers again", "operation", o.op, "after", time.Since(o.since).Round(time.Millisecond))
		o.since, o.refused = time.Time{}, time.Time{}
	}
}
