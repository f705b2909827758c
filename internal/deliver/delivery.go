package deliver

import (
	"time"

	"github.com/txonce/txonce/consumer"
)

// Delivery is one message as the broker delivered it.
type Delivery struct {
	Message *consumer.Message
	Key     string // ordering key; empty: no order
	Size    int    // bytes, for Config.MaxBatchBytes
	Raw     any    // the adapter's own data: a receipt handle, a delivery tag

	// Under Deliverer.mu.
	number uint64 // counts the deliveries in the order of Add
	state  state
	batch  *batch // while in work
	// the number of the last delivery that was added before the broker took this one away; 0: it has not
	lostAfter        uint64
	notBefore        time.Time // zero: at once
	immediateRetries int       // how often in a row the answer was to handle it again at once
}

// lost reports whether the broker took d away.
func (d *Delivery) lost() bool { return d.lostAfter > 0 }

type state uint8

const (
	unknown state = iota // never added, or settled
	waiting
	inWork
)

// postpone sets when d is handled again. behind means that d waits for an earlier delivery of its key. When the
// Processor asks for a retry at once, it gets the first one at once; then the delay grows, because a Processor that
// always asks for that would keep a core and a database busy for nothing.
func (d *Delivery) postpone(now time.Time, after time.Duration, behind bool) {
	if after > 0 || behind {
		d.immediateRetries = 0
	} else {
		after = immediateRetryDelay(d.immediateRetries)
		d.immediateRetries++
	}
	d.notBefore = now.Add(after)
}

func immediateRetryDelay(earlier int) time.Duration {
	if earlier == 0 {
		return 0
	}
	return min(10*time.Millisecond<<min(earlier-1, 10), time.Second)
}
