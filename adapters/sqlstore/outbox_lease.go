package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// moveAtOnce is how many delayed messages one transaction moves into the outbox.
const moveAtOnce = 1000

// Lease implements driver.Session.
func (o *outboxSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if want.Limit <= 0 {
		return nil, errors.New("sqlstore: lease: Want.Limit is required")
	}
	o.mu.Lock()
	held := o.shards.Tokens()
	o.mu.Unlock()
	if len(held) == 0 {
		return nil, nil
	}
	msgs, due, err := o.leaseOnce(ctx, want, held, false)
	if err != nil || !due {
		return msgs, err
	}
	err = o.store.outboxTx(ctx, "lease", func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.Outbox.Leases.MoveDue(ctx, tx, moveAtOnce)
	})
	if err != nil {
		return nil, err
	}
	// Other sessions may hold their shards.
	o.store.Wake(ctx)

	msgs, _, err = o.leaseOnce(ctx, want, held, true) // those that have come due since wait for the next poll
	return msgs, err
}

// leaseOnce leases in one transaction. If delayed messages are due and were not moved, it leases nothing.
func (o *outboxSession) leaseOnce(ctx context.Context, want driver.Want, held map[int]int64,
	moved bool,
) (msgs []driver.Leased, due bool, err error) {
	var shards shares.Held
	defer func() { o.leased(shards, msgs) }()
	err = o.store.outboxRead(ctx, "lease", func(ctx context.Context, q engine.Queryer) error {
		o.leased(shards, nil) // of a try that met another connection's writing
		shards = nil
		leasable, err := o.store.db.Outbox.Leases.Leasable(ctx, q, &o.hold, held)
		if due = leasable.Due && !moved; err != nil || due {
			return err
		}
		var chosen []int
		if chosen, shards = o.choose(leasable, want.Groups); len(chosen) == 0 {
			return nil
		}
		msgs, err = o.store.db.Outbox.Leases.Lease(ctx, q, &o.hold, chosen, leasable.Tokens, want)
		return err
	})
	if err != nil {
		msgs = nil
	}
	return msgs, due, err
}

// choose picks the next shards that have messages and none leased, and marks them as busy.
func (o *outboxSession) choose(leasable engine.Leasable, part int) (chosen []int, shards shares.Held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	part = max(part, 1)
	most := (len(o.shards) + part - 1) / part
	for _, i := range o.held() {
		if len(chosen) == most {
			break
		}
		s := o.shards[i]
		if token, there := leasable.Tokens[i]; there && token == s.Token && s.Idle() && !s.Leaving {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) > 0 {
		o.next = chosen[len(chosen)-1] + 1
	}
	return chosen, o.shards.Borrow(chosen)
}

// leased records the messages that were read from shards, which choose or Borrow has returned, and ends their busy
// marks.
func (o *outboxSession) leased(shards shares.Held, msgs []driver.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shards.Free()
	shards.Lease(msgs)
}
