package pgxstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

// watermark is the low-water mark of sequence numbers: every message with a seq up to passed is visible now or will never be
// committed. Lease starts reading there, behind the rows that were deleted. Otherwise, while another transaction is held open
// and keeps the dead versions of deleted rows, each poll would read all of them. The watermark moves only after every
// transaction that might commit a smaller seq has ended; the lock on the table shows which these are. It does not wait for
// transactions that do not write to the outbox, nor for snapshots.
//
// An asynchronous failover or a restored backup sets the sequence back, and new messages get numbers below the watermark. So
// all watermarks are dropped when the sequence is lower than before. They are also dropped when the server has been restarted,
// because by then the sequence may have passed the watermark again. In addition, Maintain searches the table for messages below
// the watermarks.
type watermark struct {
	server  int64    // when the server was started; 0: not known yet
	passed  int64    // all seqs up to it are committed, or never will be
	next    int64    // the next value of passed; 0: none
	writers []string // open transactions that may commit a seq up to next
	epoch   int      // how often all watermarks were dropped
}

// moveWatermark moves the watermark above the messages that were committed by now. Only doChores calls it, so the answers are
// processed in their order.
func (s *outboxSession) moveWatermark(ctx context.Context) error {
	var last, server int64
	var writers []string
	err := s.tx(ctx, "move the watermark", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.Last).QueryRow(func(row pgx.Row) error { return row.Scan(&last, &server) })
		b.Queue(s.store.outbox.Writers).Query(func(rows pgx.Rows) (err error) {
			writers, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice(ctx, server, last)
	s.watermark.move(server, last, writers)
	return nil
}

// notice drops the watermarks if the sequence was set back. The caller holds mu.
func (s *outboxSession) notice(ctx context.Context, server, last int64) {
	if !s.watermark.outdated(server, last) {
		return
	}
	if last < s.watermark.next {
		s.warnOfAnOlderState(ctx, "sequence", last, "before", s.watermark.next)
	}
	s.dropWatermarks()
}

// outdated reports whether the sequence was set back, or may have been.
func (w *watermark) outdated(server, last int64) bool {
	return w.server != 0 && w.server != server || last < w.next
}

func (s *outboxSession) warnOfAnOlderState(ctx context.Context, args ...any) {
	s.store.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database was set back to an older state, "+
		"for example by an asynchronous failover; the new messages are published, messages whose commits were lost are not", args...)
}

// dropWatermarks makes the next poll of each shard start at its first row. Polls that are already running raise no watermark.
// The caller holds mu.
func (s *outboxSession) dropWatermarks() {
	s.watermark = watermark{epoch: s.watermark.epoch + 1}
	for _, sh := range s.held {
		sh.low = 0
	}
}

// move updates the watermark. last is the last seq, and writers are the transactions that were writing after last was read.
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
	watermarkCheckCalls    = 30 // Maintain, which runs once a second, checks each watermark once in this many calls
	watermarkCheckCooldown = 20 // after a check Maintain pauses this many times the check's duration, because dead rows may make it slow
)

// watermarkCheck is a search for messages below the watermarks of some shards. There are none, unless the database was set back to
// an older state.
type watermarkCheck struct {
	began          time.Time
	epoch          int
	shards         []int16
	lows, returned []int64
}

// nextWatermarkCheck returns which shards to search next. The caller holds mu.
func (s *outboxSession) nextWatermarkCheck(numbers []int) watermarkCheck {
	c := watermarkCheck{began: time.Now(), epoch: s.watermark.epoch, shards: []int16{}, lows: []int64{}, returned: []int64{}}
	if c.began.Before(s.watermarkCheckAt) {
		return c
	}
	for range (len(numbers) + watermarkCheckCalls - 1) / watermarkCheckCalls {
		s.checked++
		n := numbers[s.checked%len(numbers)]
		if sh := s.held[n]; sh.low > 1 {
			c.shards, c.lows, c.returned = append(c.shards, int16(n)), append(c.lows, sh.low), append(c.returned, sh.returned)
		}
	}
	return c
}

// checkedWatermarks drops all watermarks if c has found shards with messages below. The caller holds mu.
func (s *outboxSession) checkedWatermarks(ctx context.Context, c watermarkCheck, below []int16) {
	if len(c.shards) > 0 {
		s.watermarkCheckAt = time.Now().Add(watermarkCheckCooldown * time.Since(c.began))
	}
	if len(below) == 0 || s.watermark.epoch != c.epoch {
		return
	}
	s.dropWatermarks()
	s.warnOfAnOlderState(ctx, "shards", below)
}

// scanned records which rows a poll has read.
type scanned struct {
	first    map[int]int64 // by shard: the seq of its first row
	returned map[int]int64 // by shard: how often messages have returned to it
	all      bool          // no shard's first row was cut off by the limits
}

func (s *scanned) add(m outbox.Leased, row leasedRow) {
	if s.first == nil {
		s.first, s.returned = map[int]int64{}, map[int]int64{}
	}
	s.returned[m.Shard] = row.returned
	if row.n == 1 {
		s.first[m.Shard] = m.Seq
	} else if !row.held {
		s.all = true // the limits cut off last rows first, so all first rows are there
	}
}

// raise raises the watermarks of shards after a poll. before is the watermark from before the poll.
func (s *outboxSession) raise(shards []int16, returned []int64, before watermark, seen scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watermark.epoch != before.epoch {
		return // the watermarks were dropped while the poll ran
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
		case any && returns != sh.returned: // messages have returned, so the poll started at the first row
			sh.low, sh.returned = 0, returns
		case sh.returned != returned[i], !found && (any || !seen.all): // another poll has updated the shard, or its first row is unknown
		case found:
			sh.low = max(sh.low, min(first, passed+1))
		default: // the shard is empty
			sh.low = max(sh.low, passed+1)
		}
	}
}
