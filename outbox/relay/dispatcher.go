package relay

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// dispatcher leases batches for as long as its session lasts, and starts a worker for each. Only the goroutine of run
// reads and writes its fields; workers send it reports.
type dispatcher struct {
	session       *session
	relay         *Relay
	mode          mode
	notifications <-chan struct{} // of the session; nil: it has none
	reports       chan report
	busyWorkers   int

	pollDue       bool          // poll all shards now
	notified      bool          // poll now, but only shards that notifications named
	groups        int           // see Want.Groups; 1 while there is less to do than a batch holds
	groupsPolled  int           // since the round over all groups began
	wakeUps       wakeUps       // so far
	pollInterval  time.Duration // between PollMin and PollMax
	nextPoll      time.Time
	nextRetry     time.Time // when the next message comes back that was deferred here; zero: none is known
	notBefore     time.Time // no poll before
	crowdedUntil  time.Time // the last batches left so much behind that other messages must not wait for it
	onlyNotified  bool      // the last poll was of notified shards alone
	leaseFailures int       // in a row

	published      int
	unavailableErr error   // why a publisher cools down
	err            error   // of untilNothingIsDue: why there may be more to publish
	overdueCalls   []*call // that did not return by the end of the session
}

// mode says when a dispatcher stops by itself.
type mode int

const (
	untilStopped mode = iota
	untilNothingIsDue
)

// wakeUps counts calls of Relay.Wake, and notifications of the session.
type wakeUps struct {
	calls         int
	notifications int
}

func newDispatcher(s *session, m mode) *dispatcher {
	cfg := &s.relay.cfg
	d := &dispatcher{
		session: s, relay: s.relay, mode: m, reports: make(chan report, cfg.Workers), pollDue: true,
		groups: 1, pollInterval: cfg.PollMin,
	}
	if w, ok := s.queue.(driver.Waker); ok {
		d.notifications = w.Wake()
	}
	return d
}

// run returns when ctx has ended, the lease is lost, or nothing more is due in mode untilNothingIsDue, and all workers
// have ended.
func (d *dispatcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil && d.session.work.Err() == nil && !d.finished() {
		if d.mayPoll() {
			d.poll(ctx)
			continue
		}
		if d.takeReport() || d.takeWakeUp() {
			continue
		}
		timer.Reset(d.untilNextPoll())
		select {
		case <-ctx.Done():
		case <-d.session.work.Done():
		case rep := <-d.reports:
			d.onReport(rep)
		case <-d.relay.wake:
			d.onWake()
		case <-d.notifications:
			d.onNotification()
		case <-d.session.newShards:
			d.pollDue = true
		case <-timer.C:
			d.pollDue = true
		}
	}
	d.drain(ctx)
}

// takeReport receives a report if there is one. What is ready is taken in a fixed order, and not as select chooses, so
// that a run of a simulation can be repeated exactly.
func (d *dispatcher) takeReport() bool {
	select {
	case rep := <-d.reports:
		d.onReport(rep)
		return true
	default:
		return false
	}
}

// mayPoll reports whether there is a reason to poll, a worker to give the messages to, and a publisher that takes them.
func (d *dispatcher) mayPoll() bool {
	if sole := d.relay.publishers.sole; sole != nil {
		if cooldown, _ := sole.coolingDown(); cooldown > 0 {
			return false
		}
		if sole.unproven() && d.busyWorkers > 0 { // one batch finds out whether it is available again
			return false
		}
	}
	workers := d.relay.cfg.Workers
	if d.crowded() && !d.notified {
		workers = max(workers-1, 1) // one is left for the shards of the next notification
	}
	return (d.pollDue || d.notified) && d.busyWorkers < workers && !time.Now().Before(d.notBefore)
}

// crowdedFor is how long after a batch that left much behind the dispatcher polls for new messages first, and in
// smaller groups of shards.
const (
	crowdedFor = 2 * time.Second
	muchLeft   = 100
)

func (d *dispatcher) crowded() bool { return time.Now().Before(d.crowdedUntil) }

// untilNextPoll returns when there will be a reason to poll if nothing happens before. While all workers are busy, the
// report of one of them will be the reason.
func (d *dispatcher) untilNextPoll() time.Duration {
	in := time.Until(d.notBefore)
	reason := d.pollDue || d.notified
	if !reason {
		next := d.nextPoll
		if !d.nextRetry.IsZero() && d.nextRetry.Before(next) {
			next = d.nextRetry
		}
		in = max(in, time.Until(next), 0) // a poll that is overdue comes now
	}
	if sole := d.relay.publishers.sole; sole != nil {
		cooldown, _ := sole.coolingDown()
		in = max(in, cooldown)
	}
	if reason && in <= 0 {
		return d.relay.cfg.PollMax // and mayPoll returns false: a report will come
	}
	return in
}

// onWake handles a call of Relay.Wake.
func (d *dispatcher) onWake() {
	d.wakeUps.calls++
	d.pollDue = true
	d.restartRound()
}

func (d *dispatcher) onNotification() {
	d.wakeUps.notifications++
	d.notified = true
	d.restartRound()
}

// restartRound makes the next poll look at all groups: a wake-up may be about one that was polled already.
func (d *dispatcher) restartRound() {
	if d.groupsPolled > 0 {
		d.groups, d.groupsPolled = 1, 0
	}
}

// takeWakeUp receives the first wake-up that is there, in the order of takeReport.
func (d *dispatcher) takeWakeUp() bool {
	select {
	case <-d.relay.wake:
		d.onWake()
		return true
	default:
	}
	select {
	case <-d.notifications:
		d.onNotification()
		return true
	default:
	}
	select {
	case <-d.session.newShards:
		d.pollDue = true
		return true
	default:
		return false
	}
}

// takeWakeUps receives the wake-ups that the next poll answers.
func (d *dispatcher) takeWakeUps() {
	for more := true; more; {
		more = d.takeWakeUp()
	}
}

// finished is always false in mode untilStopped.
func (d *dispatcher) finished() bool {
	switch {
	case d.mode == untilStopped:
		return false
	case d.err != nil || d.unavailableErr != nil && d.relay.publishers.sole != nil:
		return true
	}
	return !d.pollDue && !d.notified && d.busyWorkers == 0
}

// drain waits for the workers, which start no further call of Publish. Those that do not finish within LeaseTTL are cut
// off, and calls of Publish that do not return even then are left behind.
func (d *dispatcher) drain(ctx context.Context) {
	ttl := d.relay.cfg.LeaseTTL
	d.session.drainDeadline = time.Now().Add(ttl)
	cut := time.AfterFunc(ttl, func() { d.session.endWork(errors.New("relay: not drained within Config.LeaseTTL")) })
	defer cut.Stop()
	for d.busyWorkers > 0 {
		d.onReport(<-d.reports)
	}
	d.err = errors.Join(d.err, d.unavailableErr, context.Cause(d.session.work), ctx.Err())
}
