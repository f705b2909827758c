package rabbitmq

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
)

// A queue that does not confirm, such as a quorum queue without a majority, must not stop the others. A server stops
// reading from a connection with too many messages that wait for such a queue. So the connection is given up, and on
// the next one messages to the stalled destination go through a channel of their own: few at a time, and none while one
// of them is unconfirmed. When the server has confirmed them, the destination shares a channel with the others again.

const (
	// maxStall is how long the server may confirm nothing to a destination before it is stalled.
	maxStall = 5 * time.Second

	// stalledWindow is how many messages go to a stalled destination at once. RabbitMQ slows a channel down that has
	// sent 32 to a quorum queue without a leader.
	stalledWindow = 16

	// stalledPause is how long nothing more is sent to a stalled destination whose messages are unconfirmed. Then it is
	// tried on another channel, because a confirm may be lost.
	stalledPause = 10 * time.Second

	// stalledLimit is how long a call waits for a stalled destination. A confirm that comes later counts too: then the
	// next call may send.
	stalledLimit = time.Second

	// stalledRetry is how long the relay waits before it tries a message to a stalled destination again.
	stalledRetry = time.Second

	// maxStalled bounds the channels. When more destinations than that confirm nothing, the server is at fault and not
	// the destinations.
	maxStalled = 64
)

// stall is about a stalled destination. Publisher.mu guards it.
type stall struct {
	link    *link
	channel *confirmChannel // on link; nil: none yet
	busy    bool            // a call sends on it
	tried   time.Time       // when the last call ended
}

// waits reports whether messages were sent there that the server may yet confirm. Publisher.mu is held.
func (s *stall) waits() bool {
	return s.busy || s.channel != nil && s.channel.owes() && time.Since(s.tried) < stalledPause
}

// stallLimit is how long a call that ends with ctx waits for a destination.
func stallLimit(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return min(time.Until(deadline)*3/4, maxStall)
}

// waits is the answer to a message that is not sent because its destination is stalled.
func (d destination) waits() error {
	return &outbox.UnavailableError{After: stalledRetry, Err: fmt.Errorf("rabbitmq: not sent to %s: earlier messages to it are not confirmed yet; "+
		"look whether its queue has a leader and a majority of its members (rabbitmq-queues check_if_node_is_quorum_critical)", d)}
}

// state is how a destination behaved before.
type state int

const (
	working        state = iota
	suspect              // its last message closed its channel
	stalledReady         // it is stalled, and a few messages may be sent on its own channel
	stalledWaiting       // it is stalled, and nothing may be sent
)

func (p *Publisher) stateOf(d destination) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s := p.stalled[d]; {
	case s != nil && s.waits():
		return stalledWaiting
	case p.suspects[d]:
		return suspect
	case s != nil:
		return stalledReady
	default:
		return working
	}
}

// addStalled remembers the destinations of these records as stalled.
func (p *Publisher) addStalled(records []*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := map[destination]bool{}
	for _, r := range records {
		if p.stalled[r.destination()] == nil {
			fresh[r.destination()] = true
		}
	}
	if len(p.stalled)+len(fresh) > maxStalled {
		return
	}
	for d := range fresh {
		p.stalled[d] = &stall{}
	}
}

// probe sends the first of records, all to d, on a channel of d's own.
func (p *Publisher) probe(ctx context.Context, l *link, d destination, records []*record, limit time.Duration) {
	p.mu.Lock()
	s := p.stalled[d]
	if s == nil { // another call has just found that the server confirms
		s = &stall{}
		p.stalled[d] = s
	}
	first := records[:min(len(records), stalledWindow)]
	if s.waits() {
		first = nil
	}
	answerAll(records[len(first):], d.waits())
	if first == nil {
		p.mu.Unlock()
		return
	}
	s.busy = true
	channel := s.channel
	if channel != nil && (s.link != l || channel.isDead() || channel.owes()) {
		p.closeChannel(channel)
		channel = nil
	}
	p.mu.Unlock()
	var err error
	if channel == nil {
		channel, err = p.openChannel(ctx, l)
	}
	if err == nil {
		err = channel.send(ctx, first, min(limit, stalledLimit))
	}
	if err != nil && ctx.Err() == nil {
		for _, r := range first {
			r.answer(r.lost(err))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy, s.tried, s.link, s.channel = false, time.Now(), l, channel
	if channel == nil || err == nil && channel.owes() {
		return
	}
	if err == nil || ofChannel(err) {
		delete(p.stalled, d)
		p.closeChannel(channel)
	}
}
