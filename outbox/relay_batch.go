package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// batch is what one worker does: it publishes leased messages in waves, so that the next of a key goes out only when the one
// before is confirmed, and then settles all of them in one transaction. It begins waves for about 100 ms; what is left then stays
// pending.
type batch struct {
	*session
	stop     context.Context // Run's: once it has ended no Publish begins
	began    time.Time
	outcomes []Outcome // in the order they were leased; Returned until there is an answer
	errs     []error   // what the publishers said, by position in outcomes
	lanes    []*lane
	calls    map[*call]bool // under way
	answers  chan *call
	left     chan struct{} // closed when nobody listens to answers any more
	why      error         // a publisher is unavailable
	parkings int           // taken from the budget

	waves     int       // calls begun
	wavesFrom time.Time // when the first of them was
}

// wavesFor is how long a batch begins further waves. A key with many messages would keep its batch, and with it the shards of all
// other keys in it, for as long as publishing them one after another takes. The rest is given back, and is due again at once.
const wavesFor = 100 * time.Millisecond

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
	b := &batch{
		session: s, stop: stop, began: began, outcomes: make([]Outcome, len(msgs)), errs: make([]error, len(msgs)),
		calls: map[*call]bool{}, answers: make(chan *call), left: make(chan struct{}),
	}
	for i := range msgs {
		b.outcomes[i] = Outcome{Leased: msgs[i]}
	}
	for _, l := range b.lines() {
		b.next(l)
	}
	b.publish()
	if !b.settle() {
		b.budget.giveBack(b.parkings)
		return report{calls: slices.Collect(maps.Keys(b.calls))} // whoever holds the shards now does it all again
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
		err := fmt.Errorf("%w %q", ErrNoPublisher, topic)
		b.uncounted(first, b.restTopic(b.work, topic, b.began, err), err)
		return
	}
	i := slices.IndexFunc(b.lanes, func(n *lane) bool { return n.outlet == o })
	if i < 0 {
		i = len(b.lanes)
		b.lanes = append(b.lanes, &lane{outlet: o})
	}
	b.lanes[i].ready = append(b.lanes[i].ready, l)
}

// call is one Publish.
type call struct {
	*lane
	lines []*line
	sent  []int // positions in outcomes
	began time.Time
	until time.Time
	cut   bool // until is the end of the hold, less the margin

	returned chan struct{} // closed when it has

	confirmed bool                     // something was
	rest      time.Duration            // of the publisher, if nothing was and it is unavailable
	rests     map[string]time.Duration // of topics at fault
}

// begin hands a wave to n's publisher: of each line that is ready the first message, or, if the publisher is atomic, all
// up to the first that belongs to another. nil: no call has begun.
func (b *batch) begin(n *lane) *call {
	if n.busy || len(n.ready) == 0 {
		return nil
	}
	if rest, why := n.resting(); rest > 0 {
		for _, l := range n.ready {
			b.unavailable(l.todo[0], rest, why)
		}
		n.ready = nil
		return nil
	}
	c := &call{returned: make(chan struct{}), lane: n, began: time.Now(), until: b.hold.Load().Until.Add(-b.cfg.Margin), cut: true}
	if own := c.began.Add(b.cfg.PublishTimeout); own.Before(c.until) {
		c.until, c.cut = own, false
	}
	if b.stop.Err() != nil || b.work.Err() != nil || !c.began.Before(c.until) {
		return nil
	}
	if b.waves > 0 && c.began.Sub(b.wavesFrom) >= wavesFor {
		return nil
	}
	var waiting []*line
	if c.lines, waiting = b.admitted(n.ready, c.until); len(c.lines) == 0 {
		n.ready = nil
		return nil
	}
	if b.waves++; b.waves == 1 {
		b.wavesFrom = c.began
	}
	for _, l := range c.lines {
		for l.sent = 1; n.atomic && l.sent < len(l.todo) && b.goesTo(n, l.todo[l.sent]); {
			l.sent++
		}
		c.sent = append(c.sent, l.todo[:l.sent]...)
	}
	slices.Sort(c.sent) // lines of an atomic publisher are mixed as they were leased
	n.ready, n.busy = waiting, true
	go func() {
		defer func() { // whatever a publisher does to this goroutine
			close(c.returned)
			select {
			case b.answers <- c:
			case <-b.left:
			}
		}()
		b.call(c)
	}()
	return c
}

// admitted are the lines whose next message may be published now. The messages of a topic at fault are held back, but for one that
// finds out whether it is one still; the others of the batch are waiting for its answer.
func (b *batch) admitted(ready []*line, deadline time.Time) (lines, waiting []*line) {
	if b.topics.number.Load() == 0 {
		return ready, nil
	}
	probing := make(map[string]bool)
	for _, l := range ready {
		topic := b.outcomes[l.todo[0]].Topic
		if probing[topic] {
			waiting = append(waiting, l)
			continue
		}
		probing[topic] = b.topics.atFault(topic)
		if wait, why := b.topics.try(topic, deadline); wait > 0 {
			probing[topic] = false
			b.uncounted(l.todo[0], wait, why)
			continue
		}
		lines = append(lines, l)
	}
	return lines, waiting
}

func (b *batch) goesTo(n *lane, i int) bool {
	topic := b.outcomes[i].Topic
	return b.outcomes[i].Unreadable == nil && b.outlets.of(topic) == n.outlet && !b.topics.atFault(topic)
}

// answered takes in what c's publisher said, and lets the lines go on whose messages are confirmed.
func (b *batch) answered(c *call) {
	c.busy = false
	b.availability(c)
	b.topicsAnswered(c)
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
	var topic *TopicError
	switch err := b.errs[i]; {
	case errors.Is(err, ErrNotTried):
		return false
	case b.cutOff(c, err):
		return false
	case errors.As(err, &unavailable) && c.confirmed: // a part of the broker is; no reason to leave the rest of it alone
		b.uncounted(i, max(unavailable.After, partRest), err)
	case errors.As(err, &unavailable):
		b.unavailable(i, c.rest, err)
	case errors.As(err, &topic): // it rests, unless another message of the call was confirmed there
		b.uncounted(i, max(c.rests[b.outcomes[i].Topic], partRest), err)
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
		b.uncounted(i, rest, why)
	}
}

func (b *batch) uncounted(i int, delay time.Duration, cause error) {
	o := &b.outcomes[i]
	o.Verdict, o.Cause, o.Delay, o.Uncounted = Deferred, cause, delay, true
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

// park gives up on a message, or holds it back where too many were given up on.
func (b *batch) park(i int, cause error) {
	o := &b.outcomes[i]
	if wait, log := b.budget.take(); wait > 0 {
		if log {
			b.cfg.Logger.ErrorContext(b.work, "outbox: too many messages to park; they are held back and tried again, and Config.ParkLimit says how many are too many",
				"relay", b.cfg.Name, "topic", o.Topic, "id", o.ID, "seq", o.Seq, "error", cause)
		}
		b.uncounted(i, max(wait, partRest, b.cfg.Backoff(b.cfg.MaxAttempts)), fmt.Errorf("%w: %w", ErrParkLimit, cause))
		return
	}
	b.parkings++
	o.Verdict, o.Cause, o.ParkPolicy = Parked, cause, b.cfg.ParkPolicy
}
