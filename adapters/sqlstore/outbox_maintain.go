package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// Maintain implements driver.Maintainer. It reads before it writes, so it costs little when there is nothing to do.
func (o *outboxSession) Maintain(ctx context.Context) error {
	o.mu.Lock()
	tokens := o.shards.Tokens()
	o.mu.Unlock()
	if len(tokens) == 0 {
		return nil // a session that holds shards does it
	}
	run := o.store.outboxRunner("maintain")
	behind, forget, err := o.needsMaintenance(ctx, tokens)
	if err != nil {
		return err
	}
	if err := o.follow(ctx, run, behind); err != nil {
		return err
	}
	if !forget {
		return nil
	}
	return run(ctx, o.store.db.Outbox.Upkeep.Forget)
}

func (o *outboxSession) needsMaintenance(ctx context.Context,
	held map[int]int64,
) (behind []int, forget bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.cfg.ClaimTimeout+o.store.answerWithin)
	defer cancel()
	err = o.store.db.Transactions.RetryBusy(ctx, func() (err error) {
		behind, forget, err = o.store.db.Outbox.Upkeep.NeedsMaintenance(ctx, &o.hold, held)
		return err
	})
	return behind, forget, o.store.outboxError("maintain", err)
}

// follow parks messages behind parked ones, in shards without leased messages: a message must not be moved while it is
// being published. Until then Lease skips these messages.
func (o *outboxSession) follow(ctx context.Context, run engine.Run, behind []int) error {
	o.mu.Lock()
	shards := o.shards.Borrow(behind)
	o.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	defer o.leased(shards, nil)
	return run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.Outbox.Upkeep.Follow(ctx, tx, &o.hold, shards.Tokens())
	})
}
