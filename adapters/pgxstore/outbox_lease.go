package pgxstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

const (
	scanFirst    = 2 << 10  // rows to scan in a shard, unless all of them wait
	scanMost     = 2 << 20  // the most rows to scan in a shard
	scanCooldown = 64 << 10 // a shard where a Lease scanned this many rows gets a cooldown
)

// Lease implements driver.Session.
func (s *outboxSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if want.Limit <= 0 || want.Bytes < 0 {
		return nil, fmt.Errorf("pgxstore: outbox: lease: Want.Limit %d, Bytes %d: want at least 1, 0", want.Limit, want.Bytes)
	}
	if s.ranOut() {
		return nil, driver.ErrLeaseLost
	}
	if err := s.choresBefore(ctx, want); err != nil {
		return nil, err
	}
	shards, done := s.leasable(want)
	defer done()
	if len(shards) == 0 {
		return nil, nil
	}
	found, err := s.search(ctx, shards, want)
	if err == nil && len(found.messages) < (want.Limit+1)/2 && s.dueLeft.Load() {
		if err = s.moveMoreDue(ctx); err == nil && len(found.messages) == 0 { // otherwise the notification of moveDue leads to the next poll
			found, err = s.search(ctx, shards, want)
		}
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks.Leased(len(found.messages))
	s.lastFound = len(found.messages)
	s.held.Lease(found.messages)
	return found.messages, nil
}

// search first asks each shard for an equal part of the batch, which spreads the batch over many keys. If too few shards have
// messages, it asks each for the whole batch. If the first rows of all shards wait, it scans further.
func (s *outboxSession) search(ctx context.Context, shards []int, want driver.Want) (found, error) {
	if f, done, err := s.pollFew(ctx, shards, want); done || err != nil {
		return f, err
	}
	most := (want.Limit + len(shards) - 1) / len(shards)
	for {
		f, err := s.poll(ctx, shards, want, most)
		if err != nil {
			return found{}, err
		}
		if _, err := s.follow(ctx, f.deeper); err != nil {
			return found{}, err
		}
		switch {
		case f.cut || len(f.messages) >= (want.Limit+1)/2:
			return f, nil
		case most < want.Limit && len(f.full) > 0:
			most = want.Limit
		case len(f.messages) == 0 && len(f.deeper) > 0 && !f.overscanned:
			shards = f.deeper
		default:
			return f, nil
		}
	}
}

// ranOut reports whether the hold has expired by this process's clock. The process counts from before the last Renew was sent,
// so it never notices too late.
func (s *outboxSession) ranOut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.begun && time.Now().After(s.until)
}

// adaptScan sets how many rows the next poll scans in each shard.
func (s *outboxSession) adaptScan(f *found, shards []int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range shards {
		sh := s.held[n]
		if sh == nil {
			continue
		}
		hold := shardHold{n, sh.Token}
		scan := s.scans[hold]
		rows := max(scan.rows, scanFirst)
		switch {
		case slices.Contains(f.deeper, n):
			if rows >= scanCooldown {
				scan.cooldown, f.overscanned = time.Now().Add(4*took), true
			}
			scan.rows = min(4*rows, scanMost)
			s.scans[hold] = scan
		case rows/2 > scanFirst:
			scan.rows = rows / 2
			s.scans[hold] = scan
		default:
			delete(s.scans, hold)
		}
	}
}
