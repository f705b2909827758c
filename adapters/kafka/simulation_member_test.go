package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// groupMember is a process of the group.
type groupMember struct {
	g      *simGroup
	p      *sim.Process
	store  *memberStore
	c      *consumer.Consumer[*deduptest.Tx]
	ctx    context.Context
	cancel context.CancelFunc
	most   int

	member  *kafka.SimulatedMember
	session *memberSession
	next    int64     // offset of the next message to read
	pending []pending // read, and not finished
}

type pending struct {
	offset int64
	finish func()
}

// start starts a member.
func (g *simGroup) start(most int) {
	m := &groupMember{g: g, p: g.w.NewProcess("member"), most: most}
	m.ctx, m.cancel = context.WithCancel(g.ctx)
	m.store = &memberStore{Store: consumertest.NewStoreOn(g.db), m: m}
	m.store.OnCommit = m.store.commit
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: m.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		MaxAttempts: 1000,
		Backoff:     func(n int) time.Duration { return m.p.Unlike(time.Duration(n) * 10 * time.Millisecond) },
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			if msg.ID == g.slow && time.Now().Before(g.slowUntil) {
				return consumer.RetryAfter(errors.New("not yet"), time.Second)
			}
			return tx.Add("effect of " + msg.ID)
		},
	})
	if err != nil {
		g.w.Break("%v", err)
		return
	}
	m.c = c
	m.p.OnCrash = func() {
		m.cancel()
		g.leaves(m.p)
		if !g.w.Over() {
			g.start(most)
		}
	}
	m.p.OnFreeze = func(d time.Duration) {
		if d > time.Second { // the group does not wait any longer
			g.leaves(m.p)
		}
	}
	g.w.Go(func() {
		_ = c.Start(m.ctx)
		store, name := c.Positions()
		m.member = kafka.NewSimulatedMember(m.ctx, memberPositions{store, m}, name, g.wentBack)
		free := func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.owner == nil
		}
		for m.p.When("join", "", free).Action != sim.Gone {
			g.mu.Lock()
			if g.owner == nil {
				g.owner = m.p
				g.generation++
			}
			mine := g.owner == m.p
			m.session = &memberSession{m: m, generation: g.generation, marked: g.committed, metadata: g.metadata}
			g.mu.Unlock()
			if mine {
				m.read()
			}
			g.leaves(m.p)
		}
	})
}

// read reads the partition until something ends its session.
func (m *groupMember) read() {
	if !m.begin() {
		return
	}
	compared := time.Now()
	for m.ctx.Err() == nil && m.mine() && m.member.Ended() == nil {
		m.handle()
		if m.p.Dead() {
			return
		}
		m.member.Write()
		m.session.Commit() // sarama does it too, until the group has answered
		if time.Since(compared) > 5*time.Second {
			m.member.Compare()
			compared = time.Now()
		}
	}
	if why := m.member.Ended(); why != nil {
		m.p.Note("the session ends: %v", why)
	}
	if !m.p.Dead() {
		m.member.Finish()
		m.session.Commit()
	}
}

func (m *groupMember) mine() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.g.owner == m.p
}

func (m *groupMember) pause(d time.Duration) {
	timer := time.NewTimer(m.p.Unlike(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.ctx.Done():
	}
}

// begin begins the session.
func (m *groupMember) begin() bool {
	switch m.at("begin session", "") {
	case sim.Gone, "cut", "crash":
		return false
	}
	m.g.mu.Lock()
	found := kafka.Found{Committed: m.g.committed, Metadata: m.g.metadata, Log: "the topic's ID"}
	m.g.mu.Unlock()
	at, err := m.member.Begin(m.session, found)
	if err != nil {
		m.p.Note("cannot begin: %v", err)
		if errors.Is(err, kafka.ErrNoPosition) || errors.Is(err, kafka.ErrSkipped) {
			m.g.w.Break("the group cannot go on without a person: %v", err)
		}
		m.pause(100 * time.Millisecond)
		return false
	}
	m.g.mu.Lock()
	m.g.late = m.g.late || m.session.generation != m.g.generation
	if m.g.standby == nil { // before, the database could go back to a time without the row, which a person must decide
		m.g.standby = m.g.db.Snapshot()
	}
	m.g.mu.Unlock()
	m.p.Note("begins at %d: the group has %d", at, found.Committed)
	m.next, m.pending = at, nil
	m.session.Commit()
	return true
}

// handle handles the next messages. One that is not finished is tried again with the next ones.
func (m *groupMember) handle() {
	for len(m.pending) < m.most && m.next < int64(len(m.g.log)) {
		m.pending = append(m.pending, pending{m.next, m.member.Read(m.next)})
		m.next++
	}
	if len(m.pending) == 0 {
		m.pause(5 * time.Second)
		return
	}
	msgs := make([]*consumer.Message, len(m.pending))
	for i, r := range m.pending {
		id := m.g.log[r.offset]
		msgs[i] = &consumer.Message{ID: id, Payload: []byte(id), Attempt: 1}
		m.p.Note("handles %s", id)
	}
	var rest []pending
	wait := time.Duration(0)
	for i, err := range m.c.ProcessBatch(m.ctx, msgs) {
		if err == nil {
			m.pending[i].finish()
			continue
		}
		m.p.Note("%s: %v", msgs[i].ID, err)
		wait = max(wait, 20*time.Millisecond)
		if retry, again := errors.AsType[*consumer.RetryError](err); again {
			wait = max(wait, min(retry.After, time.Second))
		}
		rest = append(rest, m.pending[i])
	}
	if m.pending = rest; wait > 0 {
		m.pause(wait)
	}
}
