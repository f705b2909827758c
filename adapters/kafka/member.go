package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/deliver"
)

// leaveWithin is how long leaving the group may take after all handlers have returned.
const leaveWithin = 5 * time.Second

// member is one Run of a Subscriber. It is the sarama.ConsumerGroupHandler of all its sessions.
type member struct {
	cfg       SubscriberConfig
	log       *slog.Logger
	events    *deliver.Observer
	hooksCtx  context.Context // of hooks, which also run while Run ends
	client    sarama.Client
	group     sarama.ConsumerGroup
	positions *positions // nil: the Processor's database remembers none

	ctx      context.Context // ends when nothing more may be received
	stop     context.CancelFunc
	failOnce sync.Once
	err      error // why it stopped, unless Run's context ended

	sessionEnd      error // the cause of the last session's end; written by Cleanup, read when Consume has returned
	checkedHandOver bool  // see finishHandOver

	abandoned sync.WaitGroup // handlers that still run although their context is cancelled
	searches  sync.WaitGroup // for markers; they end with the connections
}

// run receives until ctx ends or the member fails. cut closes its connections.
func (m *member) run(ctx context.Context, cut context.CancelFunc) error {
	m.ctx, m.stop = context.WithCancel(ctx)
	defer m.stop()

	var watchers sync.WaitGroup
	watchers.Go(m.watchErrors)
	if m.positions != nil {
		watchers.Go(func() { m.positions.run(m.ctx) })
	}
	left := make(chan struct{})
	watchers.Go(func() { m.boundLeaving(left, cut) })
	m.consume()
	m.leave()
	m.searches.Wait()
	close(left)
	watchers.Wait()
	unfinished := m.awaitHandlers()
	m.failOnce.Do(func() {}) // a handler that runs on may fail the member while this reads its error
	err := errors.Join(m.err, unfinished)
	m.events.Unsubscribed(m.hooksCtx, err)
	return err
}

// fail stops the member. Run returns the first err.
func (m *member) fail(err error) {
	m.failOnce.Do(func() { m.err = err })
	m.stop()
}

// consume runs session after session. In eager mode each rebalance begins a new one.
func (m *member) consume() {
	delay, failures := backoff.FullJitter(100*time.Millisecond, 5*time.Second), 0
	for m.ctx.Err() == nil {
		m.sessionEnd = nil
		began := time.Now()
		err := m.runSession()
		if m.ctx.Err() != nil || m.stopFor(err) {
			return
		}
		ours := endedByPositions(m.sessionEnd)
		if errors.Is(err, errHandOver) || err == nil && !ours && !errors.Is(m.sessionEnd, sarama.ErrSessionConsumeClaimExited) {
			failures = 0 // a rebalance: the group waits for this member
			continue
		}
		if !ours {
			m.events.Broker.Failed(m.hooksCtx, true, cmp.Or(err, m.sessionEnd), "group", m.cfg.Group)
		} else if time.Since(began) > compareEvery {
			failures = 0
		}
		failures++
		_ = await.Sleep(m.ctx, delay(failures))
	}
}

func (m *member) runSession() error {
	if m.positions == nil {
		return m.group.Consume(m.ctx, m.cfg.Topics, m)
	}
	ctx, cancel := m.positions.sessionContext(m.ctx)
	defer cancel()
	return m.group.Consume(ctx, m.cfg.Topics, m)
}

// leave closes the connections. A dynamic member leaves the group first.
func (m *member) leave() {
	if m.group != nil {
		if err := m.group.Close(); err != nil {
			m.log.Warn("kafka: leaving the group failed; the group removes this member after its session timeout",
				"error", err)
		}
	}
	_ = m.client.Close()
}

// boundLeaving makes sure that the end does not wait for a broker that does not answer.
func (m *member) boundLeaving(left <-chan struct{}, cut context.CancelFunc) {
	select {
	case <-left:
		return
	case <-m.ctx.Done():
	}
	timer := time.NewTimer(m.cfg.Grace + m.handlerExit() + leaveWithin)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
		m.log.Warn("kafka: leaving the group took too long; connections are cut, uncommitted messages are delivered again")
		cut()
	}
}

// awaitHandlers waits for handlers that outlived their partition.
func (m *member) awaitHandlers() error {
	done := make(chan struct{})
	go func() { m.abandoned.Wait(); close(done) }()
	timer := time.NewTimer(m.handlerExit())
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("kafka: a handler is still running although its context is cancelled; nothing it handles is acknowledged")
	}
}

// Setup implements sarama.ConsumerGroupHandler.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	if m.ctx.Err() != nil {
		return m.ctx.Err()
	}
	if err := m.finishHandOver(); err != nil {
		return err
	}
	if m.positions != nil {
		if err := m.positions.beginAll(session); err != nil {
			return err
		}
	}
	m.events.Broker.Worked(m.hooksCtx)
	m.events.Subscribed(m.hooksCtx)
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler. All partitions have marked their finished messages; sarama commits
// the offsets next.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.sessionEnd = context.Cause(session.Context())
	return nil
}

// watchErrors logs background errors, at most one per second, until the group is closed.
func (m *member) watchErrors() {
	var logged time.Time
	suppressed := 0
	for err := range m.group.Errors() {
		if m.ctx.Err() != nil || m.stopFor(err) {
			continue
		}
		if time.Since(logged) < time.Second {
			suppressed++
			continue
		}
		m.log.Warn("kafka: trouble with the cluster; trying again", "error", err, "suppressed", suppressed)
		logged, suppressed = time.Now(), 0
	}
}

// stopFor fails the member if err will not pass when it tries again, and reports whether it did.
func (m *member) stopFor(err error) bool {
	var at *sarama.ConsumerError
	if errors.As(err, &at) && errors.Is(err, sarama.ErrOffsetOutOfRange) {
		if m.positions != nil && m.positions.outOfRange(partitionID{at.Topic, at.Partition}) {
			return false
		}
		if err = m.offsetGap(at.Topic, at.Partition); err != nil {
			m.events.Gap(m.hooksCtx, driver.SourceEvent{Source: at.Topic, Partition: at.Partition, Err: err})
		}
	} else {
		err = m.fatal(err)
	}
	if err == nil {
		return false
	}
	m.fail(err)
	return true
}

// fatal returns nil if err may be temporary, and otherwise err together with its remedy.
func (m *member) fatal(err error) error {
	for _, f := range []struct {
		err sarama.KError
		fix string
	}{
		{sarama.ErrTopicAuthorizationFailed, "grant this user Read and Describe on the topics"},
		{sarama.ErrGroupAuthorizationFailed, "grant this user Read on the group"},
		{sarama.ErrClusterAuthorizationFailed, "grant this user what the message names"},
		{sarama.ErrInvalidGroupId, "choose another Group"},
		{sarama.ErrInvalidSessionTimeout, "set Consumer.Group.Session.Timeout within the broker's group.min and group.max.session.timeout.ms"},
		{sarama.ErrInconsistentGroupProtocol, "give all members of the group one Consumer.Group.Rebalance.GroupStrategies in common"},
		{sarama.ErrGroupMaxSizeReached, "raise the broker's group.max.size or run fewer members"},
		{sarama.ErrFencedInstancedId, "another member runs with the same Consumer.Group.InstanceId; give each its own"},
	} {
		if errors.Is(err, f.err) {
			return fmt.Errorf("kafka: group %s of topics %v: %w; %s", m.cfg.Group, m.cfg.Topics, err, f.fix)
		}
	}
	return nil
}

// grace is how long handlers may go on when their partition is revoked.
func (m *member) grace() time.Duration {
	if m.ctx.Err() != nil {
		return m.cfg.Grace
	}
	return min(m.cfg.Grace, m.rebalanceTimeout()*3/4)
}

// handlerExit is how long a handler may take to return after its context was cancelled.
func (m *member) handlerExit() time.Duration { return min(deliver.HandlerExit, m.rebalanceTimeout()/8) }

func (m *member) rebalanceTimeout() time.Duration {
	return m.client.Config().Consumer.Group.Rebalance.Timeout
}
