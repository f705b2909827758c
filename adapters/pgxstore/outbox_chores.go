package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/outbox/driver"
)

// Chores are work that polls depend on: moving delayed messages that are due, and moving the watermark. Maintain does them about once
// a second, so that a poll is one statement. For a caller that has not called Maintain for maintainGone, a Lease that polls all shards does them,
// at most once in choresEvery. Lease also moves the watermark after many messages, and more delayed messages when very many are due.
const (
	choresEvery  = 200 * time.Millisecond
	maintainGone = 10 * time.Second
)

// chores is work for Maintain that doChores has found.
type chores struct {
	expired bool  // there are rows to delete for DropHolds or DropDead
	behind  []int // shards with keys that are held back for a parked message
}

// choresBefore does what a Lease must do before it polls.
func (s *outboxSession) choresBefore(ctx context.Context, want driver.Want) error {
	s.mu.Lock()
	all := !want.Notified && time.Since(s.choresAt) >= choresEvery && time.Since(s.maintained) >= maintainGone
	s.mu.Unlock()
	switch { // while Maintain does chores, also if the database does not answer it, Lease polls without
	case all && s.chores.TryLock():
		defer s.chores.Unlock()
		_, err := s.doChores(ctx, false)
		return err
	case s.marks.Due() && s.chores.TryLock():
		defer s.chores.Unlock()
		return s.moveWatermark(ctx)
	}
	return nil
}

// doChores looks for chores by one statement, and does them. For Maintain, it also searches some shards for messages below their
// watermarks, and for keys that are held back. The caller holds chores.
func (s *outboxSession) doChores(ctx context.Context, maintain bool) (found chores, err error) {
	s.mu.Lock()
	s.choresAt = time.Now()
	var numbers []int
	if maintain {
		numbers = s.held.Numbers()
	}
	some := []int16{} // not nil, which would be NULL
	for range min(followShards, len(numbers)) {
		s.tidied++
		some = append(some, int16(numbers[s.tidied%len(numbers)]))
	}
	s.mu.Unlock()
	check := s.marks.NextCheck(s.tokens(numbers))
	var last, server int64
	var due bool
	var below []int16
	err = s.tx(ctx, "look for maintenance", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Chores, s.owner, some, check.Shards, check.Lows, check.Returned).QueryRow(func(row pgx.Row) error {
			return row.Scan(&last, &server, &due, &found.expired, &found.behind, &below)
		})
	})
	if err != nil {
		return found, err
	}
	s.marks.Notice(ctx, server, last)
	s.marks.Checked(ctx, check, below)
	if s.marks.Behind() {
		if err := s.moveWatermark(ctx); err != nil {
			return found, err
		}
	}
	if due {
		err = s.moveDue(ctx)
	}
	return found, err
}

// moveWatermark moves the watermark above the messages that were committed by now. The caller holds chores.
func (s *outboxSession) moveWatermark(ctx context.Context) error {
	s.marks.Moving()
	var last, server int64
	var writers []string
	err := s.tx(ctx, "move the watermark", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Last).QueryRow(func(row pgx.Row) error { return row.Scan(&last, &server) })
		b.Queue(s.store.outbox.Writers).Query(func(rows pgx.Rows) (err error) {
			writers, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	if err == nil {
		s.marks.Move(ctx, server, last, writers)
	}
	return err
}

// moveMoreDue is moveDue for Lease. It does nothing while doChores runs.
func (s *outboxSession) moveMoreDue(ctx context.Context) error {
	if !s.chores.TryLock() {
		return nil
	}
	defer s.chores.Unlock()
	return s.moveDue(ctx)
}

// moveDue moves the delayed messages that are due, at most maintainRows, and wakes the relays that hold their shards. Lease moves the rest
// when it finds few messages. The caller holds chores.
func (s *outboxSession) moveDue(ctx context.Context) error {
	var moved int64
	err := s.tx(ctx, "move delayed messages", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Due, maintainRows).Exec(func(tag pgconn.CommandTag) error {
			moved = tag.RowsAffected()
			return nil
		})
	})
	s.dueLeft.Store(err == nil && moved == maintainRows)
	if moved > 0 {
		s.store.Wake(ctx)
	}
	return err
}
