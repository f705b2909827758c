package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// dispatcher leases batches for as long as its session lasts, and hands them to workers. Its state belongs to one
// goroutine; workers report to it.
type dispatcher struct {
	*session
	until    ending
	wakes    <-chan struct{} // of the session; nil: it cannot tell
	done     chan report
	inFlight int

	due   bool          // look at once
	told  bool          // likewise, but only where wake-ups of the session tell of messages
	part  int           // see Want.Groups; 1 as long as there is less to do than a batch holds
	round int           // looks since one found a full batch
	seen  wakeUps       // so far
	idle  time.Duration // between polls
	poll  time.Time
	retry time.Time // when the next message comes back that was deferred here; zero: none is known
	pause time.Time // no look before
	fails int       // of Lease, in a row

	published int
	why       error   // a publisher is unavailable
	err       error   // of untilNothingIsDue: why there may be more
	calls     []*call // of publishers that did not return in time
}

// ending says when a dispatcher stops by itself.
type ending int

const (
	untilStopped ending = iota
	untilNothingIsDue
)

// report is what became of a batch.
type report struct {
	published, failed, returned int
	retryIn                     time.Duration // of the first that was deferred; 0: none was
	why                         error         // a publisher is unavailable
	full                        bool          // there may have been more to lease
	told                        bool          // a wake-up of the session may have led to it
	seen                        wakeUps       // before it was leased
	calls                       []*call       // of publishers that did not return in time
}

// wakeUps are counts of them.
type wakeUps struct {
	calls   int // of Relay.Wake
	session int // the session knows what they are about
}

func newDispatcher(s *session, until ending) *dispatcher {
	d := &dispatcher{session: s, until: until, done: make(chan report, s.cfg.Workers), due: true, part: 1, idle: s.cfg.PollMin}
	if w, ok := s.queue.(Waker); ok {
		d.wakes = w.Wake()
	}
	return d
}

// run returns when ctx has ended, the session is lost, or everything is published, and no worker is left.
func (d *dispatcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil && d.work.Err() == nil && !d.finished() {
		if d.mayLook() {
			d.look(ctx)
			continue
		}
		timer.Reset(d.nextLook())
		select {
		case <-ctx.Done():
		case <-d.work.Done():
		case <-d.wake:
			d.called()
		case <-d.wakes:
			d.woken()
		case <-d.renewed:
			d.due = true
		case rep := <-d.done:
			d.settled(rep)
		case <-timer.C:
			d.due = true
		}
	}
	d.drain(ctx)
}

// mayLook: at once, if there is a reason to, a worker to give the messages to, and a publisher that takes them.
func (d *dispatcher) mayLook() bool {
	free := d.cfg.Workers - d.inFlight
	if sole := d.outlets.sole; sole != nil {
		if rest, _ := sole.resting(); rest > 0 {
			return false
		}
		if sole.doubtful() && d.inFlight > 0 { // one batch finds out whether it is available again
			return false
		}
	}
	return (d.due || d.told) && free > 0 && !time.Now().Before(d.pause)
}

// nextLook is in how long there will be a reason to look, unless something happens before. Where all workers are busy that
// is what happens.
func (d *dispatcher) nextLook() time.Duration {
	in := time.Until(d.pause)
	reason := d.due || d.told
	if !reason {
		next := d.poll
		if !d.retry.IsZero() && d.retry.Before(next) {
			next = d.retry
		}
		in = max(in, time.Until(next), 0) // a poll that is overdue comes now
	}
	if sole := d.outlets.sole; sole != nil {
		rest, _ := sole.resting()
		in = max(in, rest)
	}
	if reason && in <= 0 {
		return d.cfg.PollMax // and mayLook says no: a report will come
	}
	return in
}

// called: somebody who knows of a commit has called Relay.Wake.
func (d *dispatcher) called() {
	d.seen.calls++
	d.due = true
	d.again()
}

func (d *dispatcher) woken() {
	d.seen.session++
	d.told = true
	d.again()
}

// again begins the round of looks anew.
func (d *dispatcher) again() {
	if d.round > 0 { // it may be about a part that was looked at
		d.part, d.round = 1, 0
	}
}

// look leases what is due and gives it to a worker. Wake-ups do not put off polls: these find what nobody tells of.
func (d *dispatcher) look(ctx context.Context) {
	d.takeWakes()
	now := time.Now()
	if !d.retry.IsZero() && !now.Before(d.retry) {
		d.retry, d.due = time.Time{}, true
	}
	if d.until == untilNothingIsDue {
		d.due = true
	}
	told := d.told
	d.told = false
	leasing, cancel := context.WithDeadline(ctx, d.hold.Load().Until)
	msgs, err := d.queue.Lease(leasing, Want{Limit: d.cfg.BatchSize, Bytes: d.cfg.BatchBytes, Groups: d.part, Notified: !d.due})
	cancel()
	if err != nil {
		d.leaseFailed(ctx, err)
		return
	}
	d.fails = 0
	d.outages.over(ctx, opLease)
	full := d.full(msgs)
	if len(msgs) > 0 {
		d.inFlight++
		seen := d.seen
		go func() {
			rep := d.handle(ctx, msgs, now)
			rep.full, rep.told, rep.seen = full, told, seen
			d.done <- rep // there is room for all workers
		}()
	}
	switch d.round++; {
	case full:
		d.part, d.round, d.due = d.cfg.Workers, 0, true // leave shards to the other workers
	case !d.due:
		d.round = 0
	case d.round >= d.part: // all shards were looked at
		d.part, d.round, d.due = 1, 0, false
		d.poll = time.Now().Add(d.idle)
		if len(msgs) == 0 {
			d.idle = min(2*d.idle, d.cfg.PollMax)
		}
	}
}

// takeWakes forgets the wake-ups that this look answers.
func (d *dispatcher) takeWakes() {
	for {
		select {
		case <-d.wake:
			d.called()
		case <-d.wakes:
			d.woken()
		case <-d.renewed:
			d.due = true
		default:
			return
		}
	}
}

// full reports whether there may be more. A session that has found half a batch need not have looked everywhere. It may err:
// then the next poll finds what is left.
func (d *dispatcher) full(msgs []Leased) bool {
	if len(msgs) >= (d.cfg.BatchSize+1)/2 {
		return true
	}
	bytes := 0
	for i := range msgs {
		m := &msgs[i]
		bytes += len(m.Payload) + len(m.Key)
		for name, value := range m.Headers {
			bytes += len(name) + len(value)
		}
	}
	return bytes >= d.cfg.BatchBytes/2
}

func (d *dispatcher) leaseFailed(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || d.work.Err() != nil:
		return
	case errors.Is(err, ErrLeaseLost):
		d.lost(err)
		return
	}
	err = fmt.Errorf("outbox: lease messages: %w", err)
	d.queueFailed(ctx, opLease, err)
	d.fails++
	d.due = true
	d.err = err
	d.pause = time.Now().Add(queueBackoff(d.fails))
}

// settled takes in what a worker reports.
func (d *dispatcher) settled(rep report) {
	d.inFlight--
	d.published += rep.published
	d.calls = append(d.calls, rep.calls...)
	if rep.retryIn > 0 {
		if at := time.Now().Add(rep.retryIn); d.retry.IsZero() || at.Before(d.retry) {
			d.retry = at
		}
	}
	if rep.why != nil {
		d.why = rep.why
	}
	if rep.published+rep.failed == 0 { // whatever kept it from being tried must not keep us spinning
		d.pause = time.Now().Add(d.idle)
		d.poll = d.pause
		d.idle = min(2*d.idle, d.cfg.PollMax)
		if d.why == nil && d.work.Err() == nil {
			d.err = ErrStalled
		}
		return
	}
	if !rep.told { // a poll has found what nobody had told of
		d.idle = d.cfg.PollMin
		if next := time.Now().Add(d.idle); next.Before(d.poll) {
			d.poll = next
		}
	}
	if rep.full {
		d.part, d.round = d.cfg.Workers, 0
	}
	// The batch's shards were left alone since it was leased.
	if rep.full || rep.returned > 0 || rep.seen.calls != d.seen.calls || d.until == untilNothingIsDue {
		d.due = true
	}
	if rep.seen.session != d.seen.session {
		d.told = true
	}
}

// finished is never true of untilStopped.
func (d *dispatcher) finished() bool {
	switch {
	case d.until == untilStopped:
		return false
	case d.err != nil || d.why != nil && d.outlets.sole != nil:
		return true
	}
	return !d.due && !d.told && d.inFlight == 0
}

// drain waits for the workers. They begin nothing new, and those that do not finish within LeaseTTL are cut off. Calls of publishers
// that do not return then either are left behind.
func (d *dispatcher) drain(ctx context.Context) {
	d.stopBy = time.Now().Add(d.cfg.LeaseTTL)
	cut := time.AfterFunc(d.cfg.LeaseTTL, func() { d.lose(errors.New("outbox: not drained within Config.LeaseTTL")) })
	defer cut.Stop()
	for d.inFlight > 0 {
		d.settled(<-d.done)
	}
	d.err = errors.Join(d.err, d.why, context.Cause(d.work), ctx.Err())
}
