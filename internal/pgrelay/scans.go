package pgrelay

import (
	"slices"
	"sync"
	"time"
)

const (
	scanFirst    = 2 << 10  // rows to scan in a shard, unless all of them wait
	scanMost     = 2 << 20  // the most rows to scan in a shard
	scanCooldown = 64 << 10 // a shard where a Lease scanned this many rows gets a cooldown
)

// scans says how many rows the next poll scans in shards whose first rows all wait. It is safe for concurrent use.
type scans struct {
	mu sync.Mutex
	of map[shardHold]scan // shards where a poll scans more rows than scanFirst, or that cool down
}

// shardHold is one hold of a shard: when another session takes the shard, its token changes.
type shardHold struct {
	shard int
	token int64
}

type scan struct {
	rows     int64
	cooldown time.Time // no Lease polls the shard until then, because the last poll scanned very many rows
}

// cools reports whether no Lease should poll the shard now.
func (s *scans) cools(shard int, token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cooldown := s.of[shardHold{shard, token}].cooldown
	return !cooldown.IsZero() && time.Now().Before(cooldown)
}

// rows returns how many rows a poll for at most "most" messages of each shard scans.
func (s *scans) rows(shards []int16, tokens []int64, most int) (rows []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range shards {
		rows = append(rows, max(scanFirst, s.of[shardHold{int(n), tokens[i]}].rows, int64(most)+1))
	}
	return rows
}

// adapt sets how many rows the next poll scans in each shard, after a poll that took so long. In the deeper shards more
// messages may follow the scanned rows. over reports whether one of them cools down.
func (s *scans) adapt(shards []int16, tokens []int64, deeper []int, took time.Duration) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range shards {
		hold := shardHold{int(n), tokens[i]}
		of := s.of[hold]
		rows := max(of.rows, scanFirst)
		switch {
		case slices.Contains(deeper, int(n)):
			if rows >= scanCooldown {
				of.cooldown, over = time.Now().Add(4*took), true
			}
			of.rows = min(4*rows, scanMost)
		case rows/2 > scanFirst:
			of.rows = rows / 2
		default:
			delete(s.of, hold)
			continue
		}
		if s.of == nil {
			s.of = map[shardHold]scan{}
		}
		s.of[hold] = of
	}
	return over
}
