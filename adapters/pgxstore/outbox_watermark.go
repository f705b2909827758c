package pgxstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

// fence finds out up to which seq all that will ever be enqueued is visible. Lease begins behind the rows that are gone, of
// which a transaction that is held open elsewhere keeps every dead version, and each look would go through all of them.
// That is claiming by state still: the fence waits for each transaction that may yet commit a smaller seq, by the lock that
// it has on the table, and not for those that have nothing to do with it, nor for a snapshot.
//
// An asynchronous failover or a restored backup takes the sequence back, and what is enqueued then is below the marks. So all marks are
// forgotten when the sequence has stepped back, and when the server has been started since they were made, because the sequence may
// be beyond the marks again by then. Maintain looks into the table for what is below them all the same.
type watermark struct {
	server  int64    // when it was started; 0: not known yet
	passed  int64    // all seqs up to it are committed, or never will be
	next    int64    // the candidate; 0: none
	writers []string // transactions that may have a seq up to it, and were open when last seen
	epoch   int      // how often all marks were forgotten
}

// watch asks for what moves the fence. One Lease at a time does: what is seen must be told in the order in which it was.
func (s *outboxSession) watch(ctx context.Context, b *pgx.Batch) {
	var last, server int64
	b.Queue(s.store.outbox.Last).QueryRow(func(row pgx.Row) error { return row.Scan(&last, &server) })
	b.Queue(s.store.outbox.Writers).Query(func(rows pgx.Rows) error {
		writers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.watermark.outdated(server, last) {
			if last < s.watermark.next {
				s.warnOfAnOlderState(ctx, "sequence", last, "before", s.watermark.next)
			}
			s.dropWatermarks()
		}
		s.watermark.move(server, last, writers)
		return nil
	})
}

// outdated reports that the sequence has stepped back, or may have.
func (w *watermark) outdated(server, last int64) bool {
	return w.server != 0 && w.server != server || last < w.next
}

func (s *outboxSession) warnOfAnOlderState(ctx context.Context, args ...any) {
	s.store.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database has become an older state "+
		"of itself, as after an asynchronous failover; the new messages are published, those whose commits are lost are not", args...)
}

// forgetMarks has each shard looked at from its beginning, and what is being looked at meanwhile forgotten. The caller holds mu.
func (s *outboxSession) dropWatermarks() {
	s.watermark = watermark{epoch: s.watermark.epoch + 1}
	for _, sh := range s.held {
		sh.low = 0
	}
}

// move takes what is the last seq, and which transactions were writing after it was read.
func (w *watermark) move(server, last int64, writers []string) {
	w.server = server
	if w.next > 0 {
		w.writers = slices.DeleteFunc(w.writers, func(writer string) bool { return !slices.Contains(writers, writer) })
		if len(w.writers) > 0 {
			return
		}
		w.passed = w.next
	}
	w.next, w.writers = last, writers
	if len(writers) == 0 {
		w.passed = last
	}
}

const (
	watermarkCheckCalls    = 30 // calls of Maintain, which come once a second, in which each mark is checked once
	watermarkCheckCooldown = 20 // times as long as a check took does Maintain wait for the next: dead rows may make it slow
)

// checkMarks asks, of a part of the shards, which have messages below their marks. There are none unless the database went back to an
// older state of itself.
func (s *outboxSession) checkWatermarks(b *pgx.Batch) (done func(ctx context.Context)) {
	began := time.Now()
	s.mu.Lock()
	numbers := s.numbers()
	var shards []int16
	var lows, returned []int64
	for range (len(numbers) + watermarkCheckCalls - 1) / watermarkCheckCalls {
		if began.Before(s.watermarkCheckAt) {
			break
		}
		s.checked++
		n := numbers[s.checked%len(numbers)]
		if sh := s.held[n]; sh.low > 1 {
			shards, lows, returned = append(shards, int16(n)), append(lows, sh.low), append(returned, sh.returned)
		}
	}
	epoch := s.watermark.epoch
	s.mu.Unlock()
	if len(shards) == 0 {
		return func(context.Context) {}
	}
	var below []int16
	b.Queue(s.store.outbox.Below, s.owner, shards, lows, returned).Query(func(rows pgx.Rows) (err error) {
		below, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		return err
	})
	return func(ctx context.Context) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watermarkCheckAt = time.Now().Add(watermarkCheckCooldown * time.Since(began))
		if len(below) == 0 || s.watermark.epoch != epoch {
			return
		}
		s.dropWatermarks()
		s.warnOfAnOlderState(ctx, "shards", below)
	}
}

// seen is which rows a look has come across.
type scanned struct {
	first    map[int]int64 // by shard: the seq of its first row
	returned map[int]int64
	all      bool // no shard's first row was cut off
}

func (s *scanned) add(m outbox.Leased, row leasedRow) {
	if s.first == nil {
		s.first, s.returned = map[int]int64{}, map[int]int64{}
	}
	s.returned[m.Shard] = row.returned
	if row.n == 1 {
		s.first[m.Shard] = m.Seq
	} else if !row.held {
		s.all = true // rows are cut off from behind, turn by turn
	}
}

// raise remembers where the rows of shards begin. The fence is from before the look.
func (s *outboxSession) raise(shards []int16, returned []int64, before watermark, seen scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watermark.epoch != before.epoch {
		return // the look began at marks that were wrong
	}
	passed := before.passed
	for i, n := range shards {
		sh := s.held[int(n)]
		if sh == nil {
			continue
		}
		first, found := seen.first[int(n)]
		returns, any := seen.returned[int(n)]
		switch {
		case any && returns != sh.returned: // it was looked at from the beginning
			sh.low, sh.returned = 0, returns
		case sh.returned != returned[i], !found && (any || !seen.all):
		case found:
			sh.low = max(sh.low, min(first, passed+1))
		default:
			sh.low = max(sh.low, passed+1)
		}
	}
}
