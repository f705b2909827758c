package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// A topic at fault cools down for minTopicCooldown, which doubles with each probe that fails, up to maxTopicCooldown.
// Deferring a message for that long costs one write to the outbox, so a long cooldown is cheap, and a short one ends
// soon after the repair.
const (
	minTopicCooldown = time.Second
	maxTopicCooldown = time.Minute
	topicLogInterval = time.Minute // between two log lines about one topic
)

// After a cooldown, one message of the topic is due: the next probe. If more were due with it, their shards would wait
// for its answer. promptPerTopic messages follow minPartCooldown later. The others wait longer, up to maxTopicCooldown,
// each shard for another time: if all came due after each probe, they would stand before the messages of other topics
// each time.
const promptPerTopic = 64

// topicStates remembers the topics whose messages the broker refuses because of the topic. It is safe for concurrent
// use.
type topicStates struct {
	count atomic.Int64 // of faulty; read without mu, so that messages of good topics need no lock

	mu     sync.Mutex
	faulty map[string]*faultyTopic
}

// faultyTopic is guarded by the mutex of topicStates.
type faultyTopic struct {
	failures int       // in a row
	failed   time.Time // when the last one was counted
	until    time.Time // no message is published before
	probing  bool      // until is the deadline of a probe
	waiting  int       // how many messages were deferred since then
	logged   time.Time
	why      error
}

// ifFaulty calls f with the state of topic when topic is at fault.
func (ts *topicStates) ifFaulty(topic string, f func(t *faultyTopic)) {
	if ts.count.Load() == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.faulty[topic]; t != nil {
		f(t)
	}
}

// admit returns 0 when a message of topic may be published. Where topic is at fault and has cooled down, that message
// is the probe: until it is answered, or until deadline, admit returns how long other messages have to wait, and why.
func (ts *topicStates) admit(topic string, deadline time.Time) (wait time.Duration, why error) {
	ts.ifFaulty(topic, func(t *faultyTopic) {
		if wait, why = time.Until(t.until), t.why; wait <= 0 {
			t.until, t.probing = deadline, true
		} else if t.probing {
			wait = min(wait, minPartCooldown)
		}
	})
	return max(0, wait), why
}

// atFault reports whether topic is at fault, cooling down or not.
func (ts *topicStates) atFault(topic string) (is bool) {
	ts.ifFaulty(topic, func(*faultyTopic) { is = true })
	return is
}

// undecided ends a probe that shows nothing about its topic. The next message is a probe again.
func (ts *topicStates) undecided(topic string) {
	ts.ifFaulty(topic, func(t *faultyTopic) {
		if t.probing {
			t.until, t.probing = time.Time{}, false
		}
	})
}

// confirmed forgets that topic was at fault, and reports whether it was.
func (ts *topicStates) confirmed(ctx context.Context, ps *pauses, topic string) (was bool) {
	ts.ifFaulty(topic, func(*faultyTopic) {
		delete(ts.faulty, topic)
		ts.count.Add(-1)
		ps.end(ctx, pauseKey{observe.CauseBroker, topic})
		was = true
	})
	if was {
		ps.report()
	}
	return was
}

// failed starts a cooldown of topic, or a longer one, after a call that started at began. Calls that ran at the same
// time count once. It returns how long the cooldown is, and whether to log it.
func (ts *topicStates) failed(ctx context.Context, ps *pauses, topic string, began time.Time,
	why error,
) (cooldown time.Duration, log bool) {
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
		ts.count.Add(1)
		ps.begin(ctx, pauseKey{observe.CauseBroker, topic}, why)
	case !began.After(t.failed):
		return max(t.until.Sub(now), minTopicCooldown), false
	}
	cooldown = min(minTopicCooldown<<min(t.failures, 10), maxTopicCooldown)
	t.failures++
	t.failed, t.until, t.probing, t.waiting, t.why = now, now.Add(cooldown), false, 0, why
	if log = t.logged.IsZero() || now.Sub(t.logged) >= topicLogInterval; log {
		t.logged = now
	}
	return cooldown, log
}

// waits counts one more message that waits for topic, and returns how many do since the cooldown began.
func (ts *topicStates) waits(topic string) (n int) {
	ts.ifFaulty(topic, func(t *faultyTopic) {
		t.waiting++
		n = t.waiting
	})
	return n
}

// deferForTopic holds back a message because of its topic, for wait or longer.
func (b *batch) deferForTopic(i int, wait time.Duration, why error) {
	o := &b.outcomes[i]
	switch n := b.relay.topics.waits(o.Topic); {
	case n <= 1: // 0: the topic is not at fault any more
	case n <= promptPerTopic:
		wait += minPartCooldown
	default:
		shards := max(b.session.hold.Load().TotalShards, 1)
		o.WholeTopic = true
		wait = max(wait, maxTopicCooldown/2+maxTopicCooldown/2*time.Duration(o.Shard%shards)/time.Duration(shards))
	}
	b.deferUncounted(i, wait, why)
}

// coolTopicDown starts a cooldown of topic and returns how long it is.
func (b *batch) coolTopicDown(topic string, began time.Time, why error) time.Duration {
	ctx, r := b.session.work, b.relay
	cooldown, log := r.topics.failed(ctx, &r.pauses, topic, began, why)
	r.pauses.report()
	if log {
		r.cfg.Logger.WarnContext(ctx, "relay: a topic is missing or closed to this relay; its messages wait, and no attempt is counted",
			"relay", r.cfg.Name, "topic", topic, "next try", cooldown, "error", why)
	}
	return cooldown
}

// updateTopics starts a cooldown of each topic that c's publisher says is at fault, and ends that of each topic whose
// message was confirmed.
func (b *batch) updateTopics(c *call) {
	topics := &b.relay.topics
	var faults map[string]error
	for _, i := range c.positions {
		if fault := new(outbox.TopicError); b.errs[i] != nil && errors.As(b.errs[i], &fault) {
			if faults == nil {
				faults = make(map[string]error)
			}
			faults[b.outcomes[i].Topic] = b.errs[i]
		}
	}
	for _, i := range c.positions {
		topic := b.outcomes[i].Topic
		switch {
		case b.errs[i] == nil:
			delete(faults, topic) // it was created while the call ran, for example
			if topics.confirmed(b.session.work, &b.relay.pauses, topic) {
				b.relay.cfg.Logger.InfoContext(b.session.work, "relay: a topic takes messages again", "relay",
					b.relay.cfg.Name, "topic", topic)
			}
		case faults[topic] == nil:
			topics.undecided(topic)
		}
	}
	for topic, why := range faults {
		if c.topicCooldowns == nil {
			c.topicCooldowns = make(map[string]time.Duration, len(faults))
		}
		c.topicCooldowns[topic] = b.coolTopicDown(topic, c.began, why)
	}
}
