package pgxstore

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

// fence finds out up to which seq all that will ever be enqueued is visible. Lease begins behind the rows that are gone, of
// which a transaction that is held open elsewhere keeps every dead version, and each look would go through all of them.
// That is claiming by state still: the fence waits for each transaction that may yet commit a smaller seq, by the lock that
// it has on the table, and not for those that have nothing to do with it, nor for a snapshot.
type fence struct {
	passed  int64    // all seqs up to it are committed, or never will be
	next    int64    // the candidate; 0: none
	writers []string // transactions that may have a seq up to it, and were open when last seen
}

// watch asks for what moves the fence. One Lease at a time does: what is seen must be told in the order in which it was.
func (s *session) watch(b *pgx.Batch) {
	if s.store.cfg.Outbox.Mode == OutboxWAL {
		return // what spills from the log comes with an old seq
	}
	var last int64
	b.Queue(s.store.outbox.Last).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	b.Queue(s.store.outbox.Writers).Query(func(rows pgx.Rows) error {
		writers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fence.move(last, writers)
		return nil
	})
}

// move takes what is the last seq, and which transactions were writing after it was read.
func (f *fence) move(last int64, writers []string) {
	if f.next > 0 {
		f.writers = slices.DeleteFunc(f.writers, func(w string) bool { return !slices.Contains(writers, w) })
		if len(f.writers) > 0 {
			return
		}
		f.passed = f.next
	}
	f.next, f.writers = last, writers
	if len(writers) == 0 {
		f.passed = last
	}
}

// seen is which rows a look has come across.
type seen struct {
	first map[int]int64 // by shard: the seq of its first row
	back  map[int]int64
	all   bool // no shard's first row was cut off
}

func (s *seen) add(m outbox.Leased, row leasedRow) {
	if s.first == nil {
		s.first, s.back = map[int]int64{}, map[int]int64{}
	}
	s.back[m.Shard] = row.back
	if row.n == 1 {
		s.first[m.Shard] = m.Seq
	} else if !row.held {
		s.all = true // rows are cut off from behind, turn by turn
	}
}

// raise remembers where the rows of shards begin. passed is from before the look.
func (s *session) raise(shards []int16, backs []int64, passed int64, seen seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range shards {
		sh := s.held[int(n)]
		if sh == nil {
			continue
		}
		first, found := seen.first[int(n)]
		back, any := seen.back[int(n)]
		switch {
		case any && back != sh.back: // it was looked at from the beginning
			sh.low, sh.back = 0, back
		case sh.back != backs[i], !found && (any || !seen.all):
		case found:
			sh.low = max(sh.low, min(first, passed+1))
		default:
			sh.low = max(sh.low, passed+1)
		}
	}
}
