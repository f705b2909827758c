package outbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A topic at fault rests leastTopicRest, doubled by each probe that fails, up to mostTopicRest. Messages of the topic are held back
// for as long, each by one write to the outbox, so that a long rest costs little and a short one ends soon after the repair.
const (
	leastTopicRest = time.Second
	mostTopicRest  = time.Minute
	topicLogPause  = time.Minute // between two log lines about one topic
)

// topics remembers the topics at fault. It is safe for concurrent use.
type topics struct {
	number atomic.Int64 // of faulty; read without mu by everybody else's messages

	mu     sync.Mutex
	faulty map[string]*faultyTopic
}

// faultyTopic is a topic whose messages the broker refuses because of the topic. Its fields are guarded by topics.mu.
type faultyTopic struct {
	failures int       // in a row
	failed   time.Time // when the last one was counted
	until    time.Time // no message is published before
	probing  bool      // until is the deadline of a probe
	logged   time.Time
	why      error
}

// try returns 0 when a message of topic may be published. Where topic is at fault and has rested, that message is the probe: until it
// is answered, at the latest at deadline, all others wait. Otherwise try returns how long to wait, and why.
func (ts *topics) try(topic string, deadline time.Time) (wait time.Duration, why error) {
	if ts.number.Load() == 0 {
		return 0, nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.faulty[topic]
	if t == nil {
		return 0, nil
	}
	switch wait := time.Until(t.until); {
	case wait > 0 && t.probing:
		return min(wait, partRest), t.why
	case wait > 0:
		return wait, t.why
	}
	t.until, t.probing = deadline, true
	return 0, nil
}

// atFault reports whether topic is, resting or not.
func (ts *topics) atFault(topic string) bool {
	if ts.number.Load() == 0 {
		return false
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.faulty[topic] != nil
}

// failed begins a rest of topic, or a longer one, after a call that began at began. Calls that fail side by side count once. It
// returns how long the rest is, and whether to log it.
func (ts *topics) failed(topic string, began time.Time, why error) (rest time.Duration, log bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	t := ts.faulty[topic]
	switch {
	case t == nil:
		if ts.faulty == nil {
			ts.faulty = make(map[string]*faultyTopic)
		}
		t = new(faultyTopic)
		ts.faulty[topic] = t
		ts.number.Add(1)
	case !began.After(t.failed):
		return max(t.until.Sub(now), leastTopicRest), false
	}
	rest = min(leastTopicRest<<min(t.failures, 10), mostTopicRest)
	t.failures++
	t.failed, t.until, t.probing, t.why = now, now.Add(rest), false, why
	if log = t.logged.IsZero() || now.Sub(t.logged) >= topicLogPause; log {
		t.logged = now
	}
	return rest, log
}

// undecided ends a probe that says nothing about its topic: the next message is the probe.
func (ts *topics) undecided(topic string) {
	if ts.number.Load() == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.faulty[topic]; t != nil && t.probing {
		t.until, t.probing = time.Time{}, false
	}
}

// confirmed forgets that topic was at fault, and reports whether it was.
func (ts *topics) confirmed(topic string) bool {
	if ts.number.Load() == 0 {
		return false
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.faulty[topic] == nil {
		return false
	}
	delete(ts.faulty, topic)
	ts.number.Add(-1)
	return true
}

// restTopic begins a rest of topic and returns how long it is.
func (b *batch) restTopic(ctx context.Context, topic string, began time.Time, why error) time.Duration {
	rest, log := b.topics.failed(topic, began, why)
	if log {
		b.cfg.Logger.WarnContext(ctx, "outbox: a topic is missing or closed to this relay; its messages wait, and nothing is counted against them",
			"relay", b.cfg.Name, "topic", topic, "next try", rest, "error", why)
	}
	b.trace(ctx, onResting, Event{Topic: topic, Err: why, Took: rest})
	return rest
}

// topicsAnswered lets each topic rest that c's publisher says is at fault, and forgets the fault of each that took a message.
func (b *batch) topicsAnswered(c *call) {
	var faults map[string]error
	for _, i := range c.sent {
		if fault := new(TopicError); b.errs[i] != nil && errors.As(b.errs[i], &fault) {
			if faults == nil {
				faults = make(map[string]error)
			}
			faults[b.outcomes[i].Topic] = b.errs[i]
		}
	}
	for _, i := range c.sent {
		topic := b.outcomes[i].Topic
		switch {
		case b.errs[i] == nil:
			delete(faults, topic) // it was created, say, while the call ran
			if b.topics.confirmed(topic) {
				b.cfg.Logger.InfoContext(b.work, "outbox: a topic takes messages again", "relay", b.cfg.Name, "topic", topic)
			}
		case faults[topic] == nil:
			b.topics.undecided(topic)
		}
	}
	for topic, why := range faults {
		if c.rests == nil {
			c.rests = make(map[string]time.Duration, len(faults))
		}
		c.rests[topic] = b.restTopic(b.work, topic, c.began, why)
	}
}
