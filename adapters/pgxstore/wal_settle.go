package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// walSettlement is what a Settle does, in the order in which it is done: what goes to the tables is committed before the
// stream is confirmed.
type walSettlement struct {
	sent, returned []*walEntry
	spilled        []*walEntry      // to be rows
	tables         []outbox.Outcome // of rows, those of spilled among them
	keys           map[string]int   // by key: the shard; of what is held back from now on
	rows           map[string]int64 // rows of keys that are gone
}

// Settle implements outbox.Session.
func (s *walSession) Settle(ctx context.Context, outcomes []outbox.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	plan, err := s.plan(outcomes)
	if err != nil {
		return err
	}
	// From here on later messages of these keys do not pass, even if what follows fails.
	for key, shard := range plan.keys {
		s.window.occupy(key, shard, 0)
	}
	ending := map[int]int{}
	for _, list := range [][]*walEntry{plan.sent, plan.returned, plan.spilled} {
		for _, e := range list {
			ending[e.Shard]++
		}
	}
	var stay []*walEntry
	for _, e := range plan.returned {
		if e.Key != "" && s.window.isBusy(e.Key) {
			plan.spilled = append(plan.spilled, e) // it stands behind one that is held back
		} else {
			stay = append(stay, e)
		}
	}
	direct := len(plan.tables) == 0 && len(plan.spilled) == 0 && s.store.cfg.Outbox.KeepSent == 0
	if direct {
		if err := s.confirm(ctx, plan.sent, true); err != nil {
			return err
		}
	} else {
		plan.spilled = append(plan.spilled, s.window.toSpill(ending)...)
		if err := s.settleRows(ctx, plan); err != nil {
			return err
		}
	}
	s.window.giveBack(stay)
	s.window.gone(plan.rows)
	if !direct {
		// It is settled, whatever becomes of these: both are tried again.
		_ = s.confirm(ctx, nil, false)
		if len(plan.rows) > 0 {
			_ = s.lookAtKeys(ctx, true)
		}
	}
	return nil
}

// plan sorts outcomes by where their messages are.
func (s *walSession) plan(outcomes []outbox.Outcome) (*walSettlement, error) {
	p := &walSettlement{keys: map[string]int{}, rows: map[string]int64{}}
	for i := range outcomes {
		o := &outcomes[i]
		held := o.Verdict == outbox.Deferred || o.Verdict == outbox.Parked && o.KeepOrder != outbox.FollowersPass
		if held && o.Key != "" {
			p.keys[o.Key] = o.Shard
		}
		e := s.window.taken(o)
		if e == nil {
			p.tables = append(p.tables, *o)
			if o.Key != "" && (o.Verdict == outbox.Sent || o.Verdict == outbox.Parked) {
				p.rows[o.Key]++
			}
			continue
		}
		if e.Token != o.Token {
			return nil, fmt.Errorf("%w: message %d was leased with token %d, not %d", outbox.ErrLeaseLost, o.Seq, e.Token, o.Token)
		}
		switch o.Verdict {
		case outbox.Sent:
			p.sent = append(p.sent, e)
		case outbox.Returned:
			p.returned = append(p.returned, e)
		case outbox.Deferred, outbox.Parked:
			p.spilled = append(p.spilled, e)
			p.tables = append(p.tables, *o)
		default:
			return nil, fmt.Errorf("pgxstore: outbox: settle: message %d: no verdict %d", o.Seq, o.Verdict)
		}
	}
	return p, nil
}

// settleRows spills, settles what is in the tables, and remembers what is settled of the stream, in one transaction that only
// the slot's owner can commit.
func (s *walSession) settleRows(ctx context.Context, plan *walSettlement) error {
	var rows *settlement
	if len(plan.tables) > 0 {
		var err error
		if rows, err = s.tables.plan(plan.tables); err != nil {
			return err
		}
	}
	spill, err := spillColumns(plan.spilled)
	if err != nil {
		return err
	}
	var keep []any
	if s.store.cfg.Outbox.KeepSent > 0 && len(plan.sent) > 0 {
		sent, err := spillColumns(plan.sent)
		if err != nil {
			return err
		}
		keep = sent[1:8]
	}
	var mine []int16
	owner := false
	err = s.store.outboxTx(ctx, "settle", func(b *pgx.Batch) {
		var guard string
		if rows != nil {
			b.Queue(s.store.outbox.Check, s.tables.owner, rows.shards, rows.tokens).QueryRow(func(row pgx.Row) error {
				return row.Scan(&mine, &guard)
			})
		}
		b.Queue(s.store.wal.Check, s.tables.owner, s.token).QueryRow(func(row pgx.Row) error {
			return row.Scan(&owner, &guard)
		})
		if len(plan.spilled) > 0 {
			b.Queue(s.store.wal.Spill, spill...)
		}
		if rows != nil {
			rows.queue(b, s.store)
		}
		if keep != nil {
			b.Queue(s.store.wal.Keep, keep...)
		}
		if seq, also, lsn := note(plan.sent); seq != 0 {
			b.Queue(s.store.wal.Note, seq, also, lsn)
		}
	})
	switch {
	case err != nil:
		return err
	case !owner:
		s.tables.lost()
		return fmt.Errorf("%w: the slot has gone to another relay", outbox.ErrLeaseLost)
	case rows != nil && len(mine) != len(rows.shards):
		s.tables.drop(rows, mine)
		return fmt.Errorf("%w: %d of %d shards have gone to another relay", outbox.ErrLeaseLost, len(rows.shards)-len(mine), len(rows.shards))
	}
	s.window.settled(plan.sent, plan.spilled)
	s.tables.settled(plan.tables)
	return nil
}

// note is what to remember of entries, for a session that comes after a crash.
func note(entries []*walEntry) (seq int64, also []int64, lsn string) {
	var last pglogrepl.LSN
	also = []int64{}
	for i, e := range entries {
		last = max(last, e.commit)
		if i == 0 {
			seq = e.Seq
		} else {
			also = append(also, e.Seq)
		}
	}
	return seq, also, last.String()
}

// confirm settles entries that the broker has confirmed, and tells the slot how far everything is settled. What lies
// beyond is remembered, so that a crash repeats no more than what is leased. With fence it asks in any case whether this
// session still holds the slot. The caller holds settling.
func (s *walSession) confirm(ctx context.Context, entries []*walEntry, fence bool) error {
	lsn, ours, rest := s.window.confirmable(entries)
	if lsn <= s.recorded || !ours && lsn-s.recorded < walIdleStep {
		lsn = 0 // what others have written is worth a statement now and then
	}
	if lsn == 0 && len(rest) == 0 && !fence {
		s.window.settled(entries, nil)
		return nil
	}
	position := ""
	if lsn != 0 {
		position = lsn.String()
	}
	seq, also, last := note(rest)
	var recorded int64
	// It is recorded before the slot is told: a slot that is further than that has been changed by somebody else.
	err := s.store.cfg.Pool.QueryRow(ctx, s.store.wal.Confirm, s.tables.owner, s.token, position, seq, also, last).Scan(&recorded)
	if errors.Is(err, pgx.ErrNoRows) {
		s.tables.lost()
		return fmt.Errorf("%w: the slot has gone to another relay", outbox.ErrLeaseLost)
	}
	if err != nil {
		return s.store.outboxError("confirm", err)
	}
	s.window.settled(entries, nil)
	if lsn == 0 {
		return nil
	}
	s.recorded = lsn
	s.window.confirmed(lsn)
	s.told.Store(uint64(lsn))
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if stream != nil {
		_ = s.tell(ctx, stream, false) // what is wrong with it, the receiving side notices
	}
	return nil
}

// spill writes to the tables what must not pass what is there.
func (s *walSession) spill(ctx context.Context) error {
	s.settling.Lock()
	defer s.settling.Unlock()
	plan := &walSettlement{spilled: s.window.toSpill(nil)}
	if len(plan.spilled) == 0 {
		return nil
	}
	if err := s.settleRows(ctx, plan); err != nil {
		return err
	}
	return s.confirm(ctx, nil, false)
}

// lookAtKeys finds busy keys of which nothing is in the tables any more; empty: among those that seem to be so. What came
// of them meanwhile is then leased from memory again. The caller holds settling, so that nothing is spilled meanwhile.
func (s *walSession) lookAtKeys(ctx context.Context, empty bool) error {
	keys, shards := s.window.busyKeys(lookKeys, empty)
	if len(keys) == 0 {
		return nil
	}
	asked := make([][]byte, len(keys))
	for i, key := range keys {
		asked[i] = []byte(key)
	}
	rows, _ := s.store.cfg.Pool.Query(ctx, s.store.wal.Look, shards, asked)
	var key []byte
	var n int64
	var held bool
	_, err := pgx.ForEachRow(rows, []any{&key, &n, &held}, func() error {
		if n == 0 && !held {
			s.window.release(string(key))
		} else {
			s.window.recount(string(key), n)
		}
		return nil
	})
	return s.store.outboxError("look at held keys", err)
}

const lookKeys = 100

// spillColumns are the parameters of dialect.PostgresWAL.Spill.
func spillColumns(entries []*walEntry) ([]any, error) {
	n := len(entries)
	shards, seqs := make([]int16, n), make([]int64, n)
	ids, topics, headers, lsns := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	keys, payloads := make([][]byte, n), make([][]byte, n)
	times := make([]time.Time, n)
	for i, e := range entries {
		shards[i], seqs[i], ids[i], topics[i], times[i], lsns[i] = int16(e.Shard), e.Seq, e.ID, e.Topic, e.Enqueued, e.commit.String()
		keys[i], payloads[i] = []byte(e.Key), e.Payload
		if len(e.Headers) == 0 {
			continue
		}
		encoded, err := consumer.EncodeHeaders(e.Headers)
		if err != nil {
			return nil, fmt.Errorf("pgxstore: outbox: settle: message %d: headers: %w", e.Seq, err)
		}
		headers[i] = string(encoded)
	}
	return []any{shards, seqs, ids, topics, keys, payloads, headers, times, lsns}, nil
}
