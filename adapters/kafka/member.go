package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// closing is how long leaving the group may take when all handlers have returned.
const closing = 5 * time.Second

// member is one Run of a Subscriber. It is the sarama.ConsumerGroupHandler of all its sessions.
type member struct {
	*Subscriber
	client sarama.Client
	group  sarama.ConsumerGroup

	ctx    context.Context // ends when nothing more is to be taken in
	stop   context.CancelFunc
	failed sync.Once
	err    error           // why it stopped, unless it was told to
	work   context.Context // of the handlers
	ended  error           // why the last session did
	looked bool            // whether all partitions are assigned, see finishHandOver

	handlers sync.WaitGroup
	looks    sync.WaitGroup // see markers; they end with the connections
}

// run is a member from the first session to the last. die cuts its connections.
func (m *member) run(ctx context.Context, die context.CancelFunc) error {
	m.ctx, m.stop = context.WithCancel(ctx)
	defer m.stop()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	m.work = work

	var watchers sync.WaitGroup
	watchers.Go(m.watchErrors)
	left := make(chan struct{})
	watchers.Go(func() { m.boundLeaving(left, die) })
	m.consume()
	m.leave()
	m.looks.Wait()
	close(left)
	watchers.Wait()
	cancel()
	return errors.Join(m.err, m.awaitHandlers())
}

// fail stops the member. The first reason counts.
func (m *member) fail(err error) {
	m.failed.Do(func() { m.err = err })
	m.stop()
}

// consume goes from session to session. In eager mode each rebalance begins a new one.
func (m *member) consume() {
	failures := 0
	for m.ctx.Err() == nil {
		m.ended = nil
		err := m.group.Consume(m.ctx, m.cfg.Topics, m)
		if m.ctx.Err() != nil || m.refused(err) {
			return
		}
		if errors.Is(err, errHandOver) || err == nil && !errors.Is(m.ended, sarama.ErrSessionConsumeClaimExited) {
			failures = 0 // a rebalance: the group waits for this member
			continue
		}
		m.log.Warn("kafka: the session with the group failed; trying again", "error", cmp.Or(err, m.ended))
		failures++
		m.pause(failures)
	}
}

// pause waits before the next session.
func (m *member) pause(failures int) {
	limit := min(50*time.Millisecond<<min(failures, 7), 5*time.Second)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.ctx.Done():
	}
}

// leave ends the membership, of a dynamic member also in the group, and the connections.
func (m *member) leave() {
	if m.group != nil {
		if err := m.group.Close(); err != nil {
			m.log.Warn("kafka: leaving the group failed; it will notice by itself", "error", err)
		}
	}
	_ = m.client.Close()
}

// boundLeaving sees to it that the end does not wait for a broker that does not answer.
func (m *member) boundLeaving(left <-chan struct{}, die context.CancelFunc) {
	select {
	case <-left:
		return
	case <-m.ctx.Done():
	}
	timer := time.NewTimer(m.cfg.Grace + m.settling() + closing)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
		m.log.Warn("kafka: leaving the group took too long; connections are cut, uncommitted messages are delivered again")
		die()
	}
}

// awaitHandlers waits for handlers that outlived their partition. Their contexts are cancelled.
func (m *member) awaitHandlers() error {
	done := make(chan struct{})
	go func() { m.handlers.Wait(); close(done) }()
	timer := time.NewTimer(m.settling())
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("kafka: a handler is still running although its context is cancelled; nothing it handles is acknowledged")
	}
}

// Setup implements sarama.ConsumerGroupHandler.
func (m *member) Setup(sarama.ConsumerGroupSession) error {
	if m.ctx.Err() != nil {
		return m.ctx.Err()
	}
	return m.finishHandOver()
}

// Cleanup implements sarama.ConsumerGroupHandler. All partitions have marked what is finished; sarama commits that next.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.ended = context.Cause(session.Context())
	return nil
}

// watchErrors says what goes wrong in the background, at most once a second, until the group is closed.
func (m *member) watchErrors() {
	var said time.Time
	unsaid := 0
	for err := range m.group.Errors() {
		if m.ctx.Err() != nil || m.refused(err) {
			continue
		}
		if time.Since(said) < time.Second {
			unsaid++
			continue
		}
		m.log.Warn("kafka: trouble with the cluster; trying again", "error", err, "unsaid", unsaid)
		said, unsaid = time.Now(), 0
	}
}

// refused ends the membership if err is one that trying again will not cure.
func (m *member) refused(err error) bool {
	var at *sarama.ConsumerError
	if errors.As(err, &at) && errors.Is(err, sarama.ErrOffsetOutOfRange) {
		err = m.gap(at.Topic, at.Partition)
	} else {
		err = m.hopeless(err)
	}
	if err == nil {
		return false
	}
	m.fail(err)
	return true
}

// hopeless adds to err what to do about it; nil if trying again may cure it.
func (m *member) hopeless(err error) error {
	for _, h := range []struct {
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
		if errors.Is(err, h.err) {
			return fmt.Errorf("kafka: group %s of topics %v: %w; %s", m.cfg.Group, m.cfg.Topics, err, h.fix)
		}
	}
	return nil
}

// patience is how long a running handler may go on when its partition is to be given up.
func (m *member) patience() time.Duration {
	if m.ctx.Err() != nil {
		return m.cfg.Grace
	}
	return min(m.cfg.Grace, m.rebalanceTimeout()*3/4)
}

// settling is how long a handler may take to return once its context is cancelled.
func (m *member) settling() time.Duration { return min(5*time.Second, m.rebalanceTimeout()/8) }

func (m *member) rebalanceTimeout() time.Duration {
	return m.client.Config().Consumer.Group.Rebalance.Timeout
}
