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
	"github.com/txonce/txonce/dedup/driver"
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

	// of the session
	generation int
	move       driver.PositionMove
	history    int64
	metadata   string
	finished   int64
	marked     int64 // an offset that the group has not taken yet; negative: there is none
}

// start starts a member.
func (g *simGroup) start(most int) {
	m := &groupMember{g: g, p: g.w.NewProcess("member"), most: most}
	m.ctx, m.cancel = context.WithCancel(g.ctx)
	m.store = &memberStore{Store: consumertest.NewStoreOn(g.db), m: m}
	m.store.OnCommit = m.store.commit
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: m.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Backoff: func(n int) time.Duration { return m.p.Unlike(time.Duration(n) * 10 * time.Millisecond) },
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
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
		store, _ := c.Positions()
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
			m.generation = g.generation
			g.mu.Unlock()
			if mine {
				m.session(store)
			}
			g.leaves(m.p)
		}
	})
}

// session reads the partition until something ends it.
func (m *groupMember) session(store driver.Positions) {
	if !m.begin(store) {
		return
	}
	for m.ctx.Err() == nil && m.mine() {
		if m.finished < int64(len(m.g.log)) {
			m.read()
		} else {
			select { // idle
			case <-time.After(m.p.Unlike(5 * time.Second)):
			case <-m.ctx.Done():
			}
		}
		if m.p.Dead() {
			return
		}
		if err := m.write(store, false); err != nil {
			m.p.Note("the session ends: %v", err)
			break
		}
	}
	if !m.p.Dead() {
		_ = m.write(store, true)
	}
}

func (m *groupMember) mine() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.g.owner == m.p
}

// begin is beginOne of positions_begin.go.
func (m *groupMember) begin(store driver.Positions) bool {
	switch m.at("begin session", "") {
	case sim.Gone, "cut", "crash":
		return false
	}
	m.g.mu.Lock()
	found := kafka.Found{Committed: m.g.committed, Metadata: m.g.metadata, Log: "the topic's ID"}
	m.g.mu.Unlock()
	id := driver.PositionID{Consumer: "billing", Source: "kafka", Partition: 0}
	var b kafka.Beginning
	var now driver.Position
	history, err := store.ChangePosition(m.ctx, id, func(was *driver.Position) (*driver.Position, error) {
		var err error
		if b, now, err = kafka.Begin(found, was, 10); err != nil {
			return nil, err
		}
		now.PositionID = id
		return &now, nil
	})
	if err != nil {
		m.p.Note("cannot begin: %v", err)
		if errors.Is(err, kafka.ErrNoPosition) || errors.Is(err, kafka.ErrSkipped) {
			m.g.w.Break("the group cannot go on without a person: %v", err)
		}
		<-time.After(m.p.Unlike(100 * time.Millisecond))
		return false
	}
	m.g.mu.Lock()
	first := m.g.standby == nil
	m.g.mu.Unlock()
	if first { // before, the database could go back to a time without the row, which a person must decide
		m.g.mu.Lock()
		m.g.standby = m.g.db.Snapshot()
		m.g.mu.Unlock()
	}
	m.p.Note("begins at %d: the group has %d", b.At, found.Committed)
	m.move = driver.PositionMove{PositionID: id, Epoch: now.Epoch, From: b.At, Next: b.At}
	m.history, m.metadata, m.finished = history, b.Mark, b.At
	m.commitOffset(b.At)
	return true
}

// read handles the next messages.
func (m *groupMember) read() {
	next := m.g.log[m.finished:min(len(m.g.log), int(m.finished)+m.most)]
	msgs := make([]*consumer.Message, len(next))
	for i, id := range next {
		msgs[i] = &consumer.Message{ID: id, Payload: []byte(id), Attempt: 1}
	}
	m.p.Note("reads %v", next)
	for _, err := range m.c.ProcessBatch(m.ctx, msgs) {
		if err != nil {
			m.p.Note("%v", err)
			<-time.After(m.p.Unlike(20 * time.Millisecond))
			return
		}
		m.finished++
	}
}

// write is write and compare of positions.go: first the database, then the group.
func (m *groupMember) write(store driver.Positions, last bool) error {
	boundary := "write"
	if last {
		boundary = "close"
	}
	what := m.at(boundary, "")
	switch what {
	case sim.Gone, "crash", "crash before":
		return errConnection
	case "cut":
		return nil // it is tried again
	}
	if history := store.History(); m.history != history {
		return driver.ErrHistoryChanged
	}
	move := m.move
	move.From, move.Next, move.Close = m.move.Next, m.finished, last
	if move.From == move.Next && !last {
		if m.marked >= 0 { // sarama commits until the group has answered
			m.commitOffset(m.marked)
		}
		return m.compare(store)
	}
	left, err := store.MovePositions(m.ctx, m.history, []driver.PositionMove{move})
	switch {
	case what == "crash after":
		m.p.Crash()
		return errConnection
	case what == "answer lost":
		return nil
	case errors.Is(err, driver.ErrHistoryChanged):
		return err
	case err != nil:
		m.p.Note("%v", err)
		return nil
	case len(left) > 0:
		return errors.New("the database has another position")
	}
	m.g.keep()
	m.move.Next = m.finished
	if move.Next > move.From {
		m.commitOffset(m.finished)
	}
	return nil
}

// compare looks whether the database still has what it had.
func (m *groupMember) compare(store driver.Positions) error {
	rows, err := store.ListPositions(m.ctx, "billing")
	switch {
	case err != nil:
		m.p.Note("%v", err) // it is asked again
		return nil
	case store.History() != m.history:
		return driver.ErrHistoryChanged
	case len(rows) == 0 || rows[0].Epoch != m.move.Epoch || rows[0].Next < m.move.Next:
		return errors.New("the database has another position")
	}
	return nil
}

func (m *groupMember) commitOffset(at int64) {
	m.marked = at
	what := m.at("commit offset", "")
	switch what {
	case sim.Gone, "lost", "crash before":
		return
	}
	taken := m.g.offset(m.generation, at, m.metadata)
	m.p.Note("commits offset %d: %v", at, taken)
	if taken {
		m.marked = -1
	}
	if what == "crash after" {
		m.p.Crash()
	}
}
