package relay

import (
	"context"
	"time"

	"github.com/txonce/txonce/observe"
)

// forgetAfter is how long after the end of a cooldown it is known that no message waits for it: such a message would
// have been tried. Another relay has taken it, or it was discarded. No deferral because of a topic is longer than
// maxTopicCooldown and minPartCooldown together.
const forgetAfter = 2 * maxTopicCooldown

// forgetFaults ends the pauses of topics and publishers that have no waiting messages. Nothing else would end them,
// because only a confirmed message shows that the broker works again.
func (r *Relay) forgetFaults(ctx context.Context) {
	r.topics.forget(ctx, &r.pauses)
	for _, p := range r.publishers.all {
		p.forget(ctx, &r.pauses)
	}
	r.pauses.report()
}

func (ts *topicStates) forget(ctx context.Context, ps *pauses) {
	if ts.count.Load() == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for topic, t := range ts.faulty {
		if time.Since(t.until) > forgetAfter && time.Since(t.failed) > forgetAfter {
			delete(ts.faulty, topic)
			ts.count.Add(-1)
			ps.end(ctx, pauseKey{observe.CauseBroker, topic})
		}
	}
}

func (p *publisherState) forget(ctx context.Context, ps *pauses) {
	p.mu.Lock()
	idle := p.failures > 0 && time.Since(p.until) > forgetAfter
	p.mu.Unlock()
	if idle {
		p.available(ctx, ps)
	}
}
