package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/outbox"
)

// Chores are work that polls depend on: moving delayed messages that are due, and moving the watermark. Maintain does them about once
// a second, so that a poll is one statement. Lease does them only in the cases that these limits describe, and moves more delayed messages when
// very many are due.
const (
	choresEvery    = 200 * time.Millisecond // between two scans of all shards that do the chores, for a caller that does not call Maintain
	maintainGone   = 10 * time.Second       // such a caller has not called Maintain for this long
	watermarkAfter = 1000                   // so many messages were leased since the watermark was moved: polls read over their dead rows
	watermarkEvery = 50 * time.Millisecond  // and it was not moved for this long
)

// chores is what doChores has found besides.
type chores struct {
	expired bool  // there are rows to delete for DropHolds or DropDead
	behind  []int // shards with keys that are held back for a parked message
}

// choresBefore does what a Lease must do before it polls.
func (s *outboxSession) choresBefore(ctx context.Context, want outbox.Want) error {
	s.mu.Lock()
	all := !want.Notified && time.Since(s.choresAt) >= choresEvery && time.Since(s.maintained) >= maintainGone
	watermark := s.leasedSince >= watermarkAfter && time.Since(s.watermarkMoved) >= watermarkEvery
	s.mu.Unlock()
	switch { // while Maintain does chores, also if the database does not answer it, Lease polls without
	case all && s.chores.TryLock():
		defer s.chores.Unlock()
		_, err := s.doChores(ctx, false)
		return err
	case watermark && s.chores.TryLock():
		defer s.chores.Unlock()
		return s.moveWatermarkNow(ctx)
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
		numbers = s.numbers()
	}
	check := s.nextWatermarkCheck(numbers)
	some := []int16{} // not nil, which would be NULL
	for range min(followShards, len(numbers)) {
		s.tidied++
		some = append(some, int16(numbers[s.tidied%len(numbers)]))
	}
	s.mu.Unlock()
	var last, server int64
	var due bool
	var below []int16
	err = s.tx(ctx, "look for maintenance", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Chores, s.owner, some, check.shards, check.lows, check.returned).QueryRow(func(row pgx.Row) error {
			return row.Scan(&last, &server, &due, &found.expired, &found.behind, &below)
		})
	})
	if err != nil {
		return found, err
	}
	s.mu.Lock()
	s.notice(ctx, server, last)
	s.checkedWatermarks(ctx, check, below)
	move := s.leasedSince > 0 || s.watermark.passed < s.watermark.next || s.watermark.server == 0
	s.mu.Unlock()
	if move {
		if err := s.moveWatermarkNow(ctx); err != nil {
			return found, err
		}
	}
	if due {
		err = s.moveDue(ctx)
	}
	return found, err
}

// moveWatermarkNow moves the watermark. The caller holds chores.
func (s *outboxSession) moveWatermarkNow(ctx context.Context) error {
	s.mu.Lock()
	s.watermarkMoved, s.leasedSince = time.Now(), 0
	s.mu.Unlock()
	return s.moveWatermark(ctx)
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
