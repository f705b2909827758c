package relay

import (
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// call is one call of Publish.
type call struct {
	queue     *publisherQueue
	keys      []*keyMessages
	positions []int // of its messages in outcomes
	began     time.Time
	deadline  time.Time
	leaseEnd  bool          // the deadline is the end of the hold less Margin, and not PublishTimeout
	cutOff    bool          // the lease had ended when Publish returned
	returned  chan struct{} // closed when Publish has returned

	confirmed      bool                     // at least one message was
	cooldown       time.Duration            // of the publisher, when nothing was confirmed and it is unavailable
	topicCooldowns map[string]time.Duration // of topics at fault
}

// startCall calls the publisher of q with a wave: the first message of each key that is ready, or, when the publisher
// takes several of a key, all messages up to the first that belongs to another publisher. nil: no call was started.
func (b *batch) startCall(q *publisherQueue) *call {
	if q.busy || len(q.ready) == 0 {
		return nil
	}
	if cooldown, why := q.publisher.coolingDown(); cooldown > 0 {
		for _, k := range q.ready {
			b.deferUnavailable(k.pending[0], cooldown, why)
		}
		q.ready = nil
		return nil
	}
	cfg, work := &b.relay.cfg, b.session.work
	c := &call{
		queue: q, returned: make(chan struct{}), began: time.Now(),
		deadline: b.session.hold.Load().Until.Add(-cfg.Margin), leaseEnd: true,
	}
	if timeout := c.began.Add(cfg.PublishTimeout); timeout.Before(c.deadline) {
		c.deadline, c.leaseEnd = timeout, false
	}
	if b.stop.Err() != nil || work.Err() != nil || !c.began.Before(c.deadline) {
		return nil
	}
	if b.waves > 0 && c.began.Sub(b.firstWave) >= maxWaves {
		b.outOfTime = true
		return nil
	}
	c.keys, q.ready = b.admit(q.ready, c.deadline)
	if len(c.keys) == 0 {
		return b.startCall(q) // the keys that were admitted are deferred; others may be ready
	}
	if b.waves++; b.waves == 1 {
		b.firstWave = c.began
	}
	for _, k := range c.keys {
		for k.sent = 1; q.publisher.together && k.sent < len(k.pending) && b.goesTo(q, k.pending[k.sent]); {
			k.sent++
		}
		c.positions = append(c.positions, k.pending[:k.sent]...)
	}
	slices.Sort(c.positions) // a publisher that takes several of a key gets them in the order of the lease
	q.busy = true
	go func() {
		b.publish(c)
		close(c.returned)
		select {
		case b.answered <- c:
		case <-b.abandoned:
		}
	}()
	return c
}

// admit returns the keys whose next message may be published now. For a topic at fault that is one message after its
// cooldown; the other keys wait for its answer, or are deferred during the cooldown.
func (b *batch) admit(ready []*keyMessages, deadline time.Time) (admitted, waiting []*keyMessages) {
	if b.relay.topics.count.Load() == 0 {
		return ready, nil
	}
	probed := make(map[string]bool)
	for _, k := range ready {
		topic := b.outcomes[k.pending[0]].Topic
		if probed[topic] {
			waiting = append(waiting, k)
			continue
		}
		probed[topic] = b.relay.topics.atFault(topic)
		if wait, why := b.relay.topics.admit(topic, deadline); wait > 0 {
			probed[topic] = false
			b.deferForTopic(k.pending[0], wait, why)
			continue
		}
		admitted = append(admitted, k)
	}
	return admitted, waiting
}

// goesTo reports whether the message at position i can follow others of its key in a call of q's publisher.
func (b *batch) goesTo(q *publisherQueue, i int) bool {
	topic := b.outcomes[i].Topic
	return b.outcomes[i].Unreadable == nil && b.relay.publishers.of(topic) == q.publisher &&
		!b.relay.topics.atFault(topic)
}

// publish calls the publisher and writes its answers to errs. When the headers of one message cannot be made, none of
// the call is published, because a later message of its key may be among them.
func (b *batch) publish(c *call) {
	msgs := make([]outbox.Message, len(c.positions))
	ctx, cancel := context.WithDeadline(b.session.work, c.deadline)
	defer cancel()
	// The process may have been suspended since startCall. Then the timer of ctx may not have fired yet.
	if !b.composeAll(c, msgs) || ctx.Err() != nil || !time.Now().Before(c.deadline) {
		return
	}
	defer b.watch(ctx, c)()
	errs, usable := b.call(ctx, c.queue.publisher, c.positions, msgs)
	c.cutOff = b.session.work.Err() != nil || c.leaseEnd && !time.Now().Before(c.deadline)
	if !usable && len(msgs) > 1 {
		b.publishSingly(ctx, c, errs[0])
		return
	}
	for n, err := range errs {
		b.errs[c.positions[n]] = err
	}
}

// composeAll makes the messages of c. It reports whether all of them could be made, and says what is wrong with the
// others.
func (b *batch) composeAll(c *call, msgs []outbox.Message) (all bool) {
	n := 0
	compose := func() {
		for ; n < len(msgs); n++ {
			m := b.outcomes[c.positions[n]].Leased
			msgs[n] = m.Message
			msgs[n].Headers = b.relay.cfg.HeaderFormat(m.Stored)
		}
	}
	for all = true; n < len(msgs); n++ {
		ended := usercode.Run(compose) // one goroutine for all, unless HeaderFormat ends it
		if ended == nil {
			break
		}
		b.errs[c.positions[n]], all = ended.Of("relay: Config.HeaderFormat"), false
	}
	return all
}

// publishSingly publishes the messages of a call that gave no usable answers, each in a call of its own until the
// deadline of c: one message may be at fault, and must not count against the others. Messages of a key keep their
// order.
func (b *batch) publishSingly(ctx context.Context, c *call, noAnswer error) {
	p, held := c.queue.publisher, make(map[string]bool)
	b.relay.cfg.Logger.WarnContext(ctx, "relay: a publisher gave no usable answers; the messages of the call are published one by one", "relay", b.relay.cfg.Name,
		"publisher", p.typeName(), "messages", len(c.positions), "error", noAnswer)
	// counts unless there is a better answer: otherwise a slow call would be repeated for ever
	b.errs[c.positions[0]] = noAnswer
	for _, i := range c.positions {
		m := b.outcomes[i].Leased
		if held[m.OrderingKey] {
			continue
		}
		if ctx.Err() != nil || b.stop.Err() != nil {
			return
		}
		msg, err := b.compose(m) // again, because the publisher may have changed what it got
		if err == nil {
			errs, _ := b.call(ctx, p, []int{i}, []outbox.Message{msg})
			err = errs[0]
		}
		if err != nil && ctx.Err() != nil { // it had less time than a call has
			return
		}
		b.errs[i] = err
		held[m.OrderingKey] = err != nil && m.OrderingKey != ""
	}
}

// compose returns the message with the headers to publish.
func (b *batch) compose(m driver.Leased) (msg outbox.Message, err error) {
	msg = m.Message
	ended := usercode.Run(func() { msg.Headers = b.relay.cfg.HeaderFormat(m.Stored) })
	if ended != nil {
		err = ended.Of("relay: Config.HeaderFormat")
	}
	return msg, err
}

// leasedFor returns the messages at positions, with the headers of msgs, if p wants them as the outbox has them.
func (b *batch) leasedFor(p *publisherState, positions []int, msgs []outbox.Message) []driver.Leased {
	if p.leased == nil {
		return nil
	}
	leased := make([]driver.Leased, len(positions))
	for n, i := range positions {
		leased[n] = b.outcomes[i].Leased
		leased[n].Message = msgs[n]
	}
	return leased
}
