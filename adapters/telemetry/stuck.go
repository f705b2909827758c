package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// A key is stuck when another transaction held it at stuckTimes deliveries within stuckWithin: probably a process that
// is frozen. It is stuck until a delivery finds it free, or until none has found it held for stuckWithin.
const (
	stuckTimes  = 5
	stuckWithin = 10 * time.Minute
	mostStuck   = 1000 // keys that are watched
)

// stuckKeys counts stuck keys.
type stuckKeys struct {
	watched atomic.Int64 // len(holds), so that a message costs nothing while no key is held
	mu      sync.Mutex
	holds   map[dedup.KeyHash]hold
}

type hold struct {
	times       int
	first, last time.Time
}

func (s *stuckKeys) note(o *consumer.MessageOutcome) {
	held := o.Outcome == observe.Held && o.Cause == observe.CauseInFlight
	if !held && s.watched.Load() == 0 {
		return
	}
	hash := o.Key.Hash()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !held {
		delete(s.holds, hash)
	} else if h, ok := s.holds[hash]; ok || len(s.holds) < mostStuck {
		if s.holds == nil {
			s.holds = map[dedup.KeyHash]hold{}
		}
		if !ok || h.times < stuckTimes && now.Sub(h.first) > stuckWithin {
			h = hold{first: now}
		}
		h.times, h.last = h.times+1, now
		s.holds[hash] = h
	}
	s.watched.Store(int64(len(s.holds)))
}

// count returns how many keys are stuck, and forgets those that were not held for a while.
func (s *stuckKeys) count(now time.Time) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, h := range s.holds {
		switch {
		case now.Sub(h.last) > stuckWithin:
			delete(s.holds, hash)
		case h.times >= stuckTimes:
			n++
		}
	}
	s.watched.Store(int64(len(s.holds)))
	return n
}

// pauses has the gauge of pauses. The zero value is ready for use. It is safe for concurrent use.
type pauses struct {
	mu     sync.Mutex
	active map[pauseKey]int
}

// pauseKey is one series. kind is attrConsumer, attrRelay or attrSource.
type pauseKey struct {
	kind  attribute.Key
	name  string
	cause observe.Cause
}

// born exports a pause that has not happened yet as 0.
func (p *pauses) born(kind attribute.Key, name string, cause observe.Cause) {
	p.add(kind, name, cause, 0)
}

// begin returns the hook Paused. name is not that of the Pause: a relay without Config.Name is called like its process,
// and each process would have series of its own.
func (p *pauses) begin(kind attribute.Key, name string) func(context.Context, observe.Pause) {
	return func(_ context.Context, e observe.Pause) { p.add(kind, name, e.Cause, 1) }
}

// end returns the hook Resumed.
func (p *pauses) end(kind attribute.Key, name string) func(context.Context, observe.Pause) {
	return func(_ context.Context, e observe.Pause) { p.add(kind, name, e.Cause, -1) }
}

// add changes how many pauses are active: in a relay, several topics may pause for the same cause.
func (p *pauses) add(kind attribute.Key, name string, cause observe.Cause, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == nil {
		p.active = map[pauseKey]int{}
	}
	key := pauseKey{kind, name, cause}
	p.active[key] = max(0, p.active[key]+n)
}

func (p *pauses) observe(o metric.Observer, gauge metric.Int64Observable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, n := range p.active {
		o.ObserveInt64(gauge, int64(min(n, 1)), metric.WithAttributes(key.kind.String(key.name),
			attrCause.String(string(key.cause))))
	}
}
