package rabbitmq

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
)

// A queue that does not confirm, such as a quorum queue without a majority, must not stop the others. A server stops reading from a
// connection on which too much waits for such a queue, so the connection is given up, and the next one sends what goes there on a
// channel of its own: few messages at a time, and none while any of them is unconfirmed. When they are confirmed after all, the
// destination shares a channel with the others again.

const (
	// maxPatience is how long the server may confirm nothing to a destination that it owes confirms.
	maxPatience = 5 * time.Second

	// isolatedWindow is how many messages go to an isolated destination at once. RabbitMQ slows a channel down that has sent 32 to a
	// quorum queue without a leader.
	isolatedWindow = 16

	// isolatedFor is how long nothing more is sent to a destination that owes confirms. Then it is tried on another channel: a confirm may be lost.
	isolatedFor = 10 * time.Second

	// isolatedPatience is how long a call waits for such a destination. What is confirmed later counts too: then the next call may send.
	isolatedPatience = time.Second

	// isolatedRest is when a message to such a destination is worth another try.
	isolatedRest = time.Second

	// maxIsolated bounds the channels. Where more destinations do not confirm, the fault is not theirs.
	maxIsolated = 64
)

// isolation is of a destination that does not confirm. Publisher.mu guards it.
type isolation struct {
	link    *link
	channel *confirmChannel // on link; nil: none yet
	busy    bool            // a call sends on it
	tried   time.Time       // when the last one ended
}

// rests reports whether messages went there that may yet be confirmed. Publisher.mu is held.
func (i *isolation) rests() bool {
	return i.busy || i.channel != nil && i.channel.owes() && time.Since(i.tried) < isolatedFor
}

// patience is how long a call that ends with ctx waits for a destination.
func patience(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return min(time.Until(deadline)*3/4, maxPatience)
}

// resting answers the messages whose destination rests. They are not sent, and say nothing of the server as a whole.
func (p *Publisher) resting(msgs []outbox.Message) (errs []error, rest bool) {
	p.mu.Lock()
	none := len(p.isolated) == 0
	p.mu.Unlock()
	if none {
		return nil, false
	}
	errs = make([]error, len(msgs))
	for i := range msgs {
		exchange, key := p.cfg.Route(&msgs[i])
		d := destination{exchange, key}
		p.mu.Lock()
		if iso := p.isolated[d]; iso != nil && iso.rests() {
			errs[i], rest = d.resting(), true
		}
		p.mu.Unlock()
	}
	return errs, rest
}

// resting is the answer to a message that is not sent.
func (d destination) resting() error {
	return &outbox.UnavailableError{After: isolatedRest, Err: fmt.Errorf("rabbitmq: not sent to %s: earlier messages to it are not confirmed yet; "+
		"look whether its queue has a leader and a majority of its members (rabbitmq-queues check_if_node_is_quorum_critical)", d)}
}

// isolate remembers the destinations of these records.
func (p *Publisher) isolate(records []*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := map[destination]bool{}
	for _, r := range records {
		if p.isolated[r.destination()] == nil {
			fresh[r.destination()] = true
		}
	}
	if len(p.isolated)+len(fresh) > maxIsolated {
		return
	}
	for d := range fresh {
		p.isolated[d] = &isolation{}
	}
}

// takeIsolated moves those of records to another list that go to isolated destinations.
func (p *Publisher) takeIsolated(records []*record) (shared []*record, isolated map[destination][]*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.isolated) == 0 {
		return records, nil
	}
	isolated = map[destination][]*record{}
	for _, r := range records {
		if d := r.destination(); p.isolated[d] != nil {
			isolated[d] = append(isolated[d], r)
		} else {
			shared = append(shared, r)
		}
	}
	return shared, isolated
}

// probe sends the first of records to d on a channel of d's own.
func (p *Publisher) probe(ctx context.Context, l *link, d destination, records []*record, waits time.Duration) {
	p.mu.Lock()
	iso := p.isolated[d]
	if iso == nil { // it has just been found to confirm
		iso = &isolation{}
		p.isolated[d] = iso
	}
	first := records[:min(len(records), isolatedWindow)]
	if iso.rests() {
		first = nil
	}
	for _, r := range records[len(first):] {
		r.answer(d.resting())
	}
	if first == nil {
		p.mu.Unlock()
		return
	}
	iso.busy = true
	channel := iso.channel
	if channel != nil && (iso.link != l || channel.isDead() || channel.owes()) {
		p.leave(channel)
		channel = nil
	}
	p.mu.Unlock()
	var err error
	if channel == nil {
		channel, err = p.another(ctx, l)
	}
	if err == nil {
		err = channel.send(ctx, first, min(waits, isolatedPatience))
	}
	if err != nil && ctx.Err() == nil {
		for _, r := range first {
			r.answer(r.lost(err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	iso.busy, iso.tried, iso.link, iso.channel = false, time.Now(), l, channel
	if channel == nil || err == nil && channel.owes() {
		return
	}
	if err == nil || ofChannel(err) {
		delete(p.isolated, d)
		p.leave(channel)
	}
}
