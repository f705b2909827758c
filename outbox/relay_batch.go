package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// batch is what one worker does: it publishes leased messages in waves, so that the next of a key goes out only when the one
// before is confirmed, and then settles all of them in one transaction.
type batch struct {
	*session
	stop     context.Context // Run's: once it has ended no Publish begins
	began    time.Time
	outcomes []Outcome // in the order they were leased; Returned until there is an answer
	errs     []error   // what the publishers said, by position in outcomes
	lanes    []*lane
	answers  chan *call
	why      error // a publisher is unavailable
}

// lane is one publisher within a batch. It gets one call at a time, beside those of other publishers.
type lane struct {
	*outlet
	ready []*line
	busy  bool
}

// line is one key's messages, or a single one without key: positions in outcomes.
type line struct {
	todo []int
	sent int // how many of them are in a call
}

// handle publishes and settles msgs.
func (s *session) handle(stop context.Context, msgs []Leased, began time.Time) report {
	b := &batch{session: s, stop: stop, began: began, outcomes: make([]Outcome, len(msgs)), errs: make([]error, len(msgs)), answers: make(chan *call)}
	for i := range msgs {
		b.outcomes[i] = Outcome{Leased: msgs[i]}
	}
	for _, l := range b.lines() {
		b.next(l)
	}
	b.publish()
	if !b.settle() {
		return report{} // whoever holds the shards now does it all again
	}
	return b.report()
}

func (b *batch) lines() []*line {
	lines := make([]*line, 0, len(b.outcomes))
	byKey := make(map[string]*line, len(b.outcomes))
	each, positions := make([]line, len(b.outcomes)), make([]int, len(b.outcomes)) // most lines have one message
	for i := range b.outcomes {
		key := b.outcomes[i].Key
		if l := byKey[key]; l != nil {
			l.todo = append(l.todo, i)
			continue
		}
		positions[i] = i
		l := &each[i]
		l.todo = positions[i : i+1 : i+1]
		lines = append(lines, l)
		if key != "" {
			byKey[key] = l
		}
	}
	return lines
}

// next lets l wait for the publisher of its first message. A line that waits for nobody has ended: what is
// left of it is returned.
func (b *batch) next(l *line) {
	if len(l.todo) == 0 {
		return
	}
	first := l.todo[0]
	if err := b.outcomes[first].Unreadable; err != nil {
		b.park(first, err)
		return
	}
	topic := b.outcomes[first].Topic
	o := b.outlets.of(topic)
	if o == nil {
		b.failed(first, fmt.Errorf("%w %q", ErrNoPublisher, topic))
		return
	}
	i := slices.IndexFunc(b.lanes, func(n *lane) bool { return n.outlet == o })
	if i < 0 {
		i = len(b.lanes)
		b.lanes = append(b.lanes, &lane{outlet: o})
	}
	b.lanes[i].ready = append(b.lanes[i].ready, l)
}

// publish returns when nothing more may be published and no call is under way.
func (b *batch) publish() {
	for calls := 0; ; calls-- {
		for _, n := range b.lanes {
			if b.begin(n) {
				calls++
			}
		}
		if calls == 0 {
			return
		}
		b.answered(<-b.answers)
	}
}

// call is one Publish.
type call struct {
	*lane
	lines []*line
	sent  []int // positions in outcomes
	began time.Time
	until time.Time
	cut   bool // until is the end of the hold, less the margin

	confirmed bool          // something was
	rest      time.Duration // of the publisher, if nothing was and it is unavailable
}

// begin hands a wave to n's publisher: of each line that is ready the first message, or, if the publisher is atomic, all
// up to the first that belongs to another.
func (b *batch) begin(n *lane) bool {
	if n.busy || len(n.ready) == 0 {
		return false
	}
	if rest, why := n.resting(); rest > 0 {
		for _, l := range n.ready {
			b.unavailable(l.todo[0], rest, why)
		}
		n.ready = nil
		return false
	}
	c := &call{lane: n, lines: n.ready, began: time.Now(), until: b.hold.Load().Until.Add(-b.cfg.Margin), cut: true}
	if own := c.began.Add(b.cfg.PublishTimeout); own.Before(c.until) {
		c.until, c.cut = own, false
	}
	if b.stop.Err() != nil || b.work.Err() != nil || !c.began.Before(c.until) {
		return false
	}
	for _, l := range c.lines {
		for l.sent = 1; n.atomic && l.sent < len(l.todo) && b.goesTo(n, l.todo[l.sent]); {
			l.sent++
		}
		c.sent = append(c.sent, l.todo[:l.sent]...)
	}
	slices.Sort(c.sent) // lines of an atomic publisher are mixed as they were leased
	n.ready, n.busy = nil, true
	go func() {
		defer func() { b.answers <- c }() // whatever a publisher does to this goroutine
		b.call(c)
	}()
	return true
}

func (b *batch) goesTo(n *lane, i int) bool {
	return b.outcomes[i].Unreadable == nil && b.outlets.of(b.outcomes[i].Topic) == n.outlet
}

// answered takes in what c's publisher said, and lets the lines go on whose messages are confirmed.
func (b *batch) answered(c *call) {
	c.busy = false
	b.availability(c)
	for _, l := range c.lines {
		sent, ok, judged := l.todo[:l.sent], true, false
		l.todo = l.todo[l.sent:]
		for _, i := range sent {
			switch {
			case b.errs[i] == nil:
				b.outcomes[i].Verdict = Sent
			case !judged: // one verdict holds back the key; its later messages are returned
				ok, judged = false, b.judge(i, c)
			}
		}
		if ok {
			b.next(l)
		}
	}
}

// judge gives a verdict on a message that was not confirmed, and reports whether it holds back its key.
func (b *batch) judge(i int, c *call) bool {
	var unavailable *UnavailableError
	switch err := b.errs[i]; {
	case errors.Is(err, ErrNotTried):
		return false
	case b.cutOff(c, err):
		return false
	case errors.As(err, &unavailable) && c.confirmed: // a part of the broker is; no reason to leave the rest of it alone
		b.blameless(i, max(unavailable.After, partRest), err)
	case errors.As(err, &unavailable):
		b.unavailable(i, c.rest, err)
	case IsPermanent(err):
		b.park(i, err)
	default:
		b.failed(i, err)
	}
	return true
}

// cutOff reports whether err is our lease's end, which is nobody's fault.
func (b *batch) cutOff(c *call, err error) bool {
	return (c.cut || b.work.Err() != nil) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// unavailable holds back what a resting publisher was to get. Where there is no other publisher the relay as a whole
// rests, and nothing is written.
func (b *batch) unavailable(i int, rest time.Duration, why error) {
	b.why = why
	if b.outlets.sole == nil {
		b.blameless(i, rest, why)
	}
}

func (b *batch) blameless(i int, delay time.Duration, cause error) {
	o := &b.outcomes[i]
	o.Verdict, o.Cause, o.Delay, o.Blameless = Deferred, cause, delay, true
}

// failed counts an attempt.
func (b *batch) failed(i int, cause error) {
	o := &b.outcomes[i]
	if o.Attempts+1 >= b.cfg.MaxAttempts {
		b.park(i, fmt.Errorf("attempt %d: %w", o.Attempts+1, cause))
		return
	}
	o.Verdict, o.Cause, o.Delay = Deferred, cause, max(0, b.cfg.Backoff(o.Attempts+1))
}

func (b *batch) park(i int, cause error) {
	o := &b.outcomes[i]
	o.Verdict, o.Cause, o.KeepOrder = Parked, cause, b.cfg.KeepOrder
}
