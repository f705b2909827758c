package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// report is the result of a batch.
type report struct {
	published, failed, returned int
	retryIn                     time.Duration // of the first message that was deferred; 0: none was
	unavailableErr              error         // why a publisher cools down
	overdueCalls                []*call       // that did not return by the end of the session

	mayHaveMore bool    // the poll may have left due messages
	notified    bool    // a notification may have led to the poll
	wakeUps     wakeUps // before the poll
}

// crowdedGroups is how many times Workers the groups of shards are while much is left behind.
const crowdedGroups = 4

// poll leases due messages and gives them to a worker. Wake-ups do not delay the regular polls, which find unannounced
// messages.
func (d *dispatcher) poll(ctx context.Context) {
	d.takeWakeUps()
	now := time.Now()
	if !d.nextRetry.IsZero() && !now.Before(d.nextRetry) {
		d.nextRetry, d.pollDue = time.Time{}, true
		d.wakeUps.calls++ // a batch that is leased now leaves its shards out of this poll
	}
	if d.mode == untilNothingIsDue {
		d.pollDue = true
	}
	cfg := &d.relay.cfg
	crowded := d.crowded()
	all := d.pollDue
	if crowded && all && d.notified { // in turn, and a new message first: it stands behind all others of its shard
		all = d.onlyNotified && d.busyWorkers < max(cfg.Workers-1, 1)
	}
	d.onlyNotified = !all
	notified := d.notified
	d.notified = d.notified && crowded && all
	groups := d.groups
	switch {
	case !crowded:
	case !all:
		groups = 1
	case d.groups > 1:
		groups = crowdedGroups * cfg.Workers // the fewer shards a batch has, the fewer new messages wait for its end
	}
	leasing, cancel := context.WithDeadline(ctx, d.session.hold.Load().Until)
	msgs, err := d.session.queue.Lease(leasing, driver.Want{
		Limit: cfg.BatchSize, Bytes: cfg.BatchBytes, Groups: groups,
		Notified: !all,
	})
	cancel()
	if err != nil {
		d.leaseFailed(ctx, err)
		return
	}
	d.leaseFailures = 0
	d.relay.outages.recovered(ctx, opLease)
	more := d.mayHaveMore(msgs)
	if len(msgs) > 0 {
		d.busyWorkers++
		wakeUps := d.wakeUps
		go func() {
			rep := d.session.handle(ctx, msgs, now, more && d.mode == untilStopped) // a job publishes all that is due
			rep.mayHaveMore, rep.notified, rep.wakeUps = more, notified, wakeUps
			d.reports <- rep // has room for all workers
		}()
	}
	if all || !d.pollDue { // otherwise a round over all groups goes on after this poll
		d.groupsPolled++
	}
	switch {
	case more:
		d.groups, d.groupsPolled, d.pollDue = cfg.Workers, 0, true // leave shards to the other workers
	case !d.pollDue:
		d.groupsPolled = 0
	case !all:
	case d.groupsPolled >= groups:
		d.groups, d.groupsPolled, d.pollDue = 1, 0, false
		d.nextPoll = time.Now().Add(d.pollInterval)
		if len(msgs) == 0 {
			d.pollInterval = min(2*d.pollInterval, d.session.shared(cfg.PollMax))
		}
	}
}

// mayHaveMore reports whether further messages may be due. A session that found half a batch may not have read all
// shards. When this is wrong, the next regular poll finds the messages.
func (d *dispatcher) mayHaveMore(msgs []driver.Leased) bool {
	if len(msgs) >= (d.relay.cfg.BatchSize+1)/2 {
		return true
	}
	bytes := 0
	for i := range msgs {
		m := &msgs[i]
		bytes += len(m.Payload) + len(m.OrderingKey)
		for name, value := range m.Headers {
			bytes += len(name) + len(value)
		}
	}
	return bytes >= d.relay.cfg.BatchBytes/2
}

func (d *dispatcher) leaseFailed(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || d.session.work.Err() != nil:
		return
	case errors.Is(err, driver.ErrLeaseLost):
		d.session.leaseLost(LeaseLost, err)
		return
	}
	err = fmt.Errorf("relay: lease messages: %w", err)
	d.relay.queueFailed(ctx, opLease, err)
	d.leaseFailures++
	d.pollDue = true
	d.err = err
	d.notBefore = time.Now().Add(queueBackoff(d.leaseFailures))
}

// onReport handles the report of a worker.
func (d *dispatcher) onReport(rep report) {
	cfg := &d.relay.cfg
	d.busyWorkers--
	d.published += rep.published
	d.overdueCalls = append(d.overdueCalls, rep.overdueCalls...)
	if rep.failed+rep.returned >= muchLeft {
		d.crowdedUntil = time.Now().Add(crowdedFor)
	}
	if rep.retryIn > 0 {
		if at := time.Now().Add(rep.retryIn); d.nextRetry.IsZero() || at.Before(d.nextRetry) {
			d.nextRetry = at
		}
	}
	if rep.unavailableErr != nil {
		d.unavailableErr = rep.unavailableErr
	}
	if rep.published+rep.failed == 0 { // nothing was tried: polling again at once would find the same messages
		d.notBefore = time.Now().Add(d.pollInterval)
		d.nextPoll = d.notBefore
		d.pollInterval = min(2*d.pollInterval, d.session.shared(cfg.PollMax))
		if d.unavailableErr == nil && d.session.work.Err() == nil {
			d.err = ErrStalled
		}
		return
	}
	if !rep.notified { // a poll found unannounced messages
		d.pollInterval = cfg.PollMin
		if next := time.Now().Add(d.pollInterval); next.Before(d.nextPoll) {
			d.nextPoll = next
		}
	}
	if rep.mayHaveMore {
		d.groups, d.groupsPolled = cfg.Workers, 0
	}
	// While the batch was leased, polls left its shards out.
	if rep.mayHaveMore || rep.returned > 0 || rep.wakeUps.calls != d.wakeUps.calls || d.mode == untilNothingIsDue {
		d.pollDue = true
	}
	if rep.wakeUps.notifications != d.wakeUps.notifications {
		d.notified = true
	}
}
