package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
)

// ErrNoPublisher is the failure of a message when Config has a Publisher for other topics, but not for this one.
var ErrNoPublisher = errors.New("outbox: no publisher for topic")

// outlets says which Publisher a topic has.
type outlets struct {
	byTopic map[string]*outlet
	other   *outlet // nil: topics that byTopic does not name have none
	sole    *outlet // nil: there are several
}

// Bounds of a rest whose length is left to us. Finding out costs little, and what is at fault may be a part of the broker only.
const (
	leastRest = 10 * time.Millisecond
	mostRest  = 5 * time.Second
)

// outlet is a Publisher, and whether it rests.
type outlet struct {
	Publisher
	atomic  bool
	backoff func(int) time.Duration

	mu       sync.Mutex
	failures int // unavailable in a row
	since    time.Time
	until    time.Time
	why      error
}

func newOutlets(cfg Config) outlets {
	os := outlets{byTopic: make(map[string]*outlet, len(cfg.Publishers))}
	var all []*outlet
	outletOf := func(p Publisher) *outlet {
		for _, o := range all { // one Publisher under several topics gets their messages in one call
			if reflect.TypeOf(p).Comparable() && reflect.TypeOf(o.Publisher).Comparable() && o.Publisher == p {
				return o
			}
		}
		a, ok := p.(AtomicPublisher)
		o := &outlet{Publisher: p, atomic: ok && a.Atomic(), backoff: cfg.Backoff}
		all = append(all, o)
		return o
	}
	if cfg.Publisher != nil {
		os.other = outletOf(cfg.Publisher)
	}
	for topic, p := range cfg.Publishers {
		os.byTopic[topic] = outletOf(p)
	}
	if len(all) == 1 {
		os.sole = all[0]
	}
	return os
}

func (os *outlets) of(topic string) *outlet {
	if o, ok := os.byTopic[topic]; ok {
		return o
	}
	return os.other
}

// publish returns one answer per message, whatever the Publisher does.
func (o *outlet) publish(ctx context.Context, msgs []Message) (errs []error) {
	defer func() {
		if v := recover(); v != nil { // no verdict, whatever it wraps
			errs = o.unknown(msgs, fmt.Sprintf("panicked: %v", v))
		}
	}()
	errs = o.Publish(ctx, msgs)
	switch {
	case errs == nil:
		return make([]error, len(msgs))
	case len(errs) != len(msgs):
		return o.unknown(msgs, fmt.Sprintf("gave %d answers for %d messages", len(errs), len(msgs)))
	}
	return errs
}

// unknown is the answer for each message of a call of which nobody knows what was published.
func (o *outlet) unknown(msgs []Message, what string) []error {
	err := fmt.Errorf("outbox: publisher %T of topic %q %s", o.Publisher, msgs[0].Topic, what)
	return slices.Repeat([]error{err}, len(msgs))
}

// resting returns how long the publisher is left alone yet, and why; 0: it is not.
func (o *outlet) resting() (time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, time.Until(o.until)), o.why
}

// doubtful: it rested, and nothing has been confirmed since.
func (o *outlet) doubtful() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures > 0
}

// unavailable begins a rest after a call of which nothing was confirmed, and returns how long it is and how many there
// have been in a row; 0: calls that failed side by side count once.
func (o *outlet) unavailable(began time.Time, err *UnavailableError) (rest time.Duration, failures int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures > 0 && began.Before(o.since) {
		return max(0, time.Until(o.until)), 0
	}
	o.failures++
	if rest = err.After; rest <= 0 {
		rest = min(max(o.backoff(o.failures), leastRest), mostRest)
	}
	o.since, o.why = time.Now(), err
	o.until = o.since.Add(rest)
	return rest, o.failures
}

// confirmed ends what unavailable has begun, and returns whether it had.
func (o *outlet) confirmed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	rested := o.failures > 0
	o.failures, o.until, o.why = 0, time.Time{}, nil
	return rested
}
