package deduptest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
)

var _ driver.Positions = (*Store)(nil)

// Snapshot is what a Database had committed at some time.
type Snapshot struct {
	rows      map[dedup.KeyHash]*row
	data      map[string]any
	count     map[string]int
	windows   map[string]map[time.Duration]driver.WindowUse
	forgotten time.Time
	positions map[driver.PositionID]driver.Position
	outbox    *outboxtest.Snapshot
}

// Snapshot returns what is committed now, as a standby has it whose replication stops, or a backup.
func (db *Database) Snapshot() *Snapshot {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := &Snapshot{
		rows: maps.Clone(db.rows), data: maps.Clone(db.data), count: maps.Clone(db.count),
		windows: maps.Clone(db.windows), forgotten: db.forgotten, positions: maps.Clone(db.positions),
		outbox: db.outbox.Snapshot(),
	}
	for consumer, uses := range s.windows {
		s.windows[consumer] = maps.Clone(uses)
	}
	return s
}

// Promote makes another server take over that has what s has: commits since then, and open transactions, are lost.
// With the Snapshot of this moment nothing is lost, as after a restart.
func (db *Database) Promote(s *Snapshot) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.server++
	db.restore(s)
}

// Restore restores s as a backup, in a way that the server's identity does not show.
func (db *Database) Restore(s *Snapshot) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.restore(s)
}

func (db *Database) restore(s *Snapshot) {
	for tx := range db.open {
		tx.close(ErrDown)
	}
	db.rows, db.data, db.count = maps.Clone(s.rows), maps.Clone(s.data), maps.Clone(s.count)
	db.windows, db.forgotten, db.positions = maps.Clone(s.windows), s.forgotten, maps.Clone(s.positions)
	db.outbox.Restore(s.outbox)
	for consumer, uses := range db.windows {
		db.windows[consumer] = maps.Clone(uses)
	}
}

// saw notes the server that answers. db.mu is held.
func (s *Store) saw() int64 {
	if s.history == 0 || s.server != s.db.server {
		s.history++
		s.server = s.db.server
	}
	return s.history
}

// History implements driver.Positions.
func (s *Store) History() int64 {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return s.history
}

// ChangePosition implements driver.Positions. change must not use the Store.
func (s *Store) ChangePosition(ctx context.Context, id driver.PositionID,
	change func(now *driver.Position) (*driver.Position, error),
) (history int64, err error) {
	if err := id.Validate(); err != nil {
		return 0, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return 0, err
	}
	history = s.saw()
	var now *driver.Position
	if row, found := s.db.positions[id]; found {
		now = &row
	}
	var before driver.Rewind
	if now != nil {
		before = now.Rewind
	}
	next, err := change(now)
	if err != nil || next == nil {
		return history, err
	}
	row := *next
	row.PositionID, row.Updated = id, s.db.now()
	if err := row.Validate(); err != nil {
		return history, err
	}
	if row.Rewind != before && row.Rewind != (driver.Rewind{}) {
		row.Rewind.At = row.Updated
	}
	s.db.positions[id] = row
	return history, nil
}

// MovePositions implements driver.Positions.
func (s *Store) MovePositions(ctx context.Context, history int64, moves []driver.PositionMove) (
	left map[int]*driver.Position, err error,
) {
	if err := driver.ValidateMoves(moves); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.history != history {
		return nil, driver.ErrHistoryChanged
	}
	if err := s.db.reachable(ctx); err != nil {
		return nil, err
	}
	if s.saw() != history {
		return nil, driver.ErrHistoryChanged
	}
	left = map[int]*driver.Position{}
	for i, m := range moves {
		row, found := s.db.positions[m.PositionID]
		switch {
		case !found:
			left[i] = nil
		case row.Epoch != m.Epoch || row.Next < m.From || row.Next > m.Next:
			left[i] = &row
		default:
			row.Next, row.Open, row.Updated = m.Next, row.Open && !m.Close, s.db.now()
			s.db.positions[m.PositionID] = row
		}
	}
	return left, nil
}

// ListPositions implements driver.Positions.
func (s *Store) ListPositions(ctx context.Context, consumer string) ([]driver.Position, error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return nil, err
	}
	s.saw()
	var rows []driver.Position
	for id, row := range s.db.positions {
		if consumer == "" || id.Consumer == consumer {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b driver.Position) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Partition, b.Partition))
	})
	return rows, nil
}
