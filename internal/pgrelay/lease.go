package pgrelay

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Lease implements driver.Session.
func (s *Session) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if want.Limit <= 0 || want.Bytes < 0 {
		return nil, fmt.Errorf("outbox: lease: Want.Limit %d, Bytes %d: want at least 1, 0", want.Limit, want.Bytes)
	}
	if s.held.ranOut() {
		return nil, driver.ErrLeaseLost
	}
	if err := s.chores.before(ctx, want); err != nil {
		return nil, err
	}
	shards, done := s.held.leasable(want, s.scans.cools)
	defer done()
	if len(shards) == 0 {
		return nil, nil
	}
	f, err := s.search(ctx, shards, want)
	if err == nil && len(f.messages) < (want.Limit+1)/2 && s.chores.dueLeft.Load() {
		if err = s.chores.moveMoreDue(ctx); err == nil && len(f.messages) == 0 {
			// otherwise the notification of moveDue leads to the next poll
			f, err = s.search(ctx, shards, want)
		}
	}
	if err != nil {
		return nil, err
	}
	s.marks.Leased(len(f.messages))
	s.found.Store(int64(len(f.messages)))
	s.held.update(func(held shares.Held) { held.Lease(f.messages) })
	return f.messages, nil
}

// search looks for due messages in shards. If the first rows of all shards wait, it scans further.
func (s *Session) search(ctx context.Context, shards []int, want driver.Want) (f found, err error) {
	for {
		err = s.cfg.Conns.Together(ctx, "lease", func(ctx context.Context, run Run) (err error) {
			f, err = s.look(ctx, run, shards, want)
			return err
		})
		if err == nil {
			_, err = s.follow(ctx, f.deeper)
		}
		if err != nil || len(f.messages) > 0 || len(f.deeper) == 0 || f.overscanned {
			return f, err
		}
		shards, want.Notified = f.deeper, false // pollFew cannot read so many rows
	}
}

// look first asks each shard for an equal part of the batch, which spreads the batch over many keys. If too few shards
// have messages, it asks each for the whole batch.
func (s *Session) look(ctx context.Context, run Run, shards []int, want driver.Want) (found, error) {
	if f, done, err := s.pollFew(ctx, run, shards, want); done || err != nil {
		return f, err
	}
	most := (want.Limit + len(shards) - 1) / len(shards)
	f, err := s.poll(ctx, run, shards, want, most)
	if err == nil && !f.cut && len(f.messages) < (want.Limit+1)/2 && most < want.Limit && len(f.full) > 0 {
		return s.poll(ctx, run, shards, want, want.Limit)
	}
	return f, err
}
