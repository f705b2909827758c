package kafka_test

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/sim"
)

// memberSession is sarama's session of one generation of the group.
type memberSession struct {
	sarama.ConsumerGroupSession
	m          *groupMember
	generation int
	marked     int64
	metadata   string
	dirty      bool // the group has not taken what was marked
}

// Context implements sarama.ConsumerGroupSession.
func (s *memberSession) Context() context.Context { return s.m.ctx }

// MarkOffset implements sarama.ConsumerGroupSession: it moves the offset up only.
func (s *memberSession) MarkOffset(_ string, _ int32, at int64, metadata string) {
	if at > s.marked {
		s.marked, s.metadata, s.dirty = at, metadata, true
	}
}

// ResetOffset implements sarama.ConsumerGroupSession: it moves the offset down, or not at all.
func (s *memberSession) ResetOffset(_ string, _ int32, at int64, metadata string) {
	if at <= s.marked {
		s.marked, s.metadata, s.dirty = at, metadata, true
	}
}

// Commit implements sarama.ConsumerGroupSession.
func (s *memberSession) Commit() {
	m := s.m
	if !s.dirty || m.p.Dead() {
		return
	}
	what := m.at("commit offset", "")
	switch what {
	case sim.Gone, "lost", "crash before":
		return
	}
	taken := m.g.offset(s.generation, s.marked, s.metadata)
	m.p.Note("commits offset %d: %v", s.marked, taken)
	s.dirty = !taken
	if what == "crash after" {
		m.p.Crash()
	}
}

// memberPositions has the boundaries of the positions. The adapter holds a mutex there, which no other goroutine of the
// member wants.
type memberPositions struct {
	driver.Positions
	m *groupMember
}

// MovePositions implements driver.Positions.
func (s memberPositions) MovePositions(ctx context.Context, history int64, moves []driver.PositionMove) (
	left map[int]*driver.Position, err error,
) {
	boundary := "write"
	if moves[0].Close {
		boundary = "close"
	}
	what := s.m.at(boundary, "")
	switch what {
	case sim.Gone, "crash", "crash before", "cut":
		return nil, errConnection
	}
	left, err = s.Positions.MovePositions(ctx, history, moves)
	if err == nil {
		s.m.g.keep()
	}
	switch what {
	case "crash after":
		s.m.p.Crash()
		return nil, errConnection
	case "answer lost":
		return nil, errConnection
	}
	return left, err
}

// ListPositions implements driver.Positions.
func (s memberPositions) ListPositions(ctx context.Context, of string) ([]driver.Position, error) {
	switch s.m.at("compare", "") {
	case sim.Gone, "crash", "cut":
		return nil, errConnection
	}
	return s.Positions.ListPositions(ctx, of)
}
