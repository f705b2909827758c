package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/outbox"
)

// comeAtOnce is how many messages whose time has come are moved in one transaction.
const comeAtOnce = 1000

// Lease implements outbox.Session.
func (o *outboxSession) Lease(ctx context.Context, want outbox.Want) ([]outbox.Leased, error) {
	if want.Limit <= 0 {
		return nil, errors.New("sqlstore: lease: Want.Limit is required")
	}
	o.mu.Lock()
	held := len(o.shards)
	o.mu.Unlock()
	if held == 0 {
		return nil, nil
	}
	sight, err := o.look(ctx)
	if err == nil && sight.due {
		err = o.store.outboxTx(ctx, "lease", func(ctx context.Context, tx *sql.Tx) error {
			return o.store.db.come(ctx, tx, comeAtOnce)
		})
		if err == nil {
			sight, err = o.look(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	chosen, shards := o.choose(sight, want.Groups)
	if len(chosen) == 0 {
		return nil, nil
	}
	var msgs []outbox.Leased
	defer func() { o.leased(shards, msgs) }()
	err = o.store.outboxRead(ctx, "lease", func(ctx context.Context, q queryer) (err error) {
		msgs, err = o.store.db.lease(ctx, q, &o.hold, chosen, sight.tokens, want)
		return err
	})
	if err != nil {
		msgs = nil
	}
	return msgs, err
}

func (o *outboxSession) look(ctx context.Context) (sight outboxSight, err error) {
	err = o.store.outboxRead(ctx, "lease", func(ctx context.Context, q queryer) (err error) {
		sight, err = o.store.db.look(ctx, q, &o.hold)
		return err
	})
	return sight, err
}

// choose marks the next shards that have messages and nothing leased.
func (o *outboxSession) choose(sight outboxSight, part int) (chosen []int, shards map[int]*outboxShard) {
	o.mu.Lock()
	defer o.mu.Unlock()
	part = max(part, 1)
	most := (len(o.shards) + part - 1) / part
	shards = make(map[int]*outboxShard)
	for _, i := range o.held() {
		s := o.shards[i]
		token, there := sight.tokens[i]
		if len(chosen) == most {
			break
		}
		if !there || token != s.token || !s.idle() || s.leaving {
			continue
		}
		s.busy = true
		chosen, shards[i] = append(chosen, i), s
	}
	if len(chosen) > 0 {
		o.next = chosen[len(chosen)-1] + 1
	}
	return chosen, shards
}

// leased notes what was read of the shards that choose has marked.
func (o *outboxSession) leased(shards map[int]*outboxShard, msgs []outbox.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range shards {
		s.busy = false
	}
	for i := range msgs {
		s := shards[msgs[i].Shard]
		if s.leased == nil {
			s.leased = make(map[int64]struct{})
		}
		s.leased[msgs[i].Seq] = struct{}{}
	}
}

// leaseFairly takes a fair part of each shard first, and then more of those that have more, as far as want allows. read returns of
// each shard the first messages that are due after a number, so many at the most, in their order.
func leaseFairly[M interface{ place() (seq int64, size int) }](
	shards []int, want outbox.Want, read func(shards []int, after map[int]int64, part int) (map[int][]M, error),
) (chosen []M, err error) {
	room := outboxRoom{limit: want.Limit, bytes: want.Bytes}
	after := make(map[int]int64)
	for len(shards) > 0 && !room.full {
		part := max(room.limit/len(shards), 1)
		found, err := read(shards, after, part)
		if err != nil {
			return nil, err
		}
		var more []int
		for _, shard := range shards {
			for _, m := range found[shard] {
				seq, size := m.place()
				if room.full || !room.take(size) {
					break
				}
				chosen = append(chosen, m)
				after[shard] = seq
			}
			if len(found[shard]) >= part {
				more = append(more, shard)
			}
		}
		shards = more
	}
	return chosen, nil
}
