package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup/storekit"
	"github.com/txonce/txonce/outbox"
)

// releaseAtOnce is how many messages of each key one transaction returns to the queue.
const releaseAtOnce = 1000

// Outbox returns the operations on this store's outbox: its statistics, and what a person does with messages that a relay has
// parked. Dead letters of consumers are not in the outbox: see DeadLetters.
func (s *Store) Outbox() outbox.Operations { return operations{s} }

// operations are the outbox.Operations of a Store. They are apart from it because Store.Park and Store.DeadLetters are about the
// messages of consumers.
type operations struct{ store *Store }

// Parked implements outbox.Operations.
func (o operations) Parked(ctx context.Context, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	s := o.store
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	rows, _ := s.cfg.Pool.Query(ctx, s.outbox.Parked, filter.After, filter.Topic, []byte(filter.Key), filter.Limit,
		filter.Cause, nullTime(filter.Since), nullTime(filter.Until))
	list, err := pgx.CollectRows(rows, parkedMessage)
	return list, s.outboxError("list parked messages", err)
}

// nullTime returns NULL for the zero time.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func parkedMessage(row pgx.CollectableRow) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers *string
	if err := row.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &m.Enqueued, &m.Attempts, &m.Cause,
		&m.Behind, &m.Waiting, &m.ParkedAt); err != nil {
		return m, err
	}
	m.Key = string(key)
	if headers != nil {
		m.Headers, m.Unreadable = storekit.DecodeHeaders([]byte(*headers))
	}
	return m, nil
}

// Unpark implements outbox.Operations. A message behind another parked message of its key stays parked. If Unpark fails midway,
// some messages are unparked, and the relay's Maintain later releases the messages that waited behind them.
func (o operations) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	s := o.store
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return 0, err
	}
	n, err := s.unpark(ctx, seqs, s.outbox.Unpark)
	if n > 0 {
		s.Wake(ctx)
	}
	return n, err
}

// Discard implements outbox.Operations. If it fails midway, some messages are deleted.
func (o operations) Discard(ctx context.Context, seqs ...int64) (int, error) {
	s := o.store
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return 0, err
	}
	n, err := s.unpark(ctx, seqs, s.outbox.Discard)
	if n > 0 {
		s.Wake(ctx)
	}
	return n, err
}

// parkedGroup holds parked messages of one shard.
type parkedGroup struct {
	shard int16
	seqs  []int64
	keys  [][]byte
}

// unpark sends statement for the parked messages among seqs, shard by shard, and releases the messages that waited behind them.
func (s *Store) unpark(ctx context.Context, seqs []int64, statement string) (n int, err error) {
	for len(seqs) > 0 {
		now := seqs[:min(len(seqs), releaseAtOnce)]
		seqs = seqs[len(now):]
		of, err := s.findParked(ctx, now)
		if err != nil {
			return n, err
		}
		for _, p := range of {
			err := s.release(ctx, p.shard, p.keys, func(b *pgx.Batch) {
				b.Queue(statement, p.shard, p.seqs)
			})
			if err != nil {
				return n, err
			}
			n += len(p.seqs)
		}
	}
	return n, nil
}

func (s *Store) findParked(ctx context.Context, seqs []int64) ([]*parkedGroup, error) {
	var all []*parkedGroup
	by := map[int16]*parkedGroup{}
	seen := map[string]bool{}
	rows, _ := s.cfg.Pool.Query(ctx, s.outbox.Find, seqs)
	var seq int64
	var shard int16
	var key []byte
	_, err := pgx.ForEachRow(rows, []any{&seq, &shard, &key}, func() error {
		p := by[shard]
		if p == nil {
			p = &parkedGroup{shard: shard}
			by[shard], all = p, append(all, p)
		}
		if n := len(p.seqs); n > 0 && p.seqs[n-1] == seq {
			return nil // the caller listed it twice
		}
		p.seqs = append(p.seqs, seq)
		if id := fmt.Sprint(shard, " ", string(key)); key != nil && !seen[id] {
			seen[id] = true
			p.keys = append(p.keys, append([]byte(nil), key...))
		}
		return nil
	})
	return all, s.outboxError("find parked messages", err)
}

// release runs first, and then returns the messages that no longer wait behind a parked one. It uses as many transactions as it
// needs. Each transaction leaves a hold that begins at the first message that has not returned yet, so that the order survives
// a crash.
func (s *Store) release(ctx context.Context, shard int16, keys [][]byte, first func(*pgx.Batch)) error {
	for {
		var moved int64
		err := s.outboxTx(ctx, "release", func(b *pgx.Batch) {
			b.Queue(s.outbox.LockShard, shard)
			if first != nil {
				first(b)
			}
			if len(keys) == 0 {
				return
			}
			b.Queue(s.outbox.Release, shard, keys, releaseAtOnce).Exec(func(tag pgconn.CommandTag) error {
				moved = tag.RowsAffected()
				return nil
			})
			b.Queue(s.outbox.Rehold, shard, keys)
		})
		if err != nil || moved < releaseAtOnce {
			return err
		}
		first = nil
	}
}
