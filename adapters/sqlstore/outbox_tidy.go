package sqlstore

import (
	"context"
	"database/sql"
)

// followAtOnce is how far Tidy and Settle look in a shard for messages behind a parked one, and forgetAtOnce how many sent
// messages Tidy forgets in one transaction.
const (
	followAtOnce = 1000
	forgetAtOnce = 2000
)

// Tidy implements outbox.Tidier.
func (o *outboxSession) Tidy(ctx context.Context) error {
	if err := o.follow(ctx); err != nil {
		return err
	}
	untidy, err := o.untidy(ctx)
	if err != nil || !untidy {
		return err
	}
	return o.store.outboxTx(ctx, "tidy", func(ctx context.Context, tx *sql.Tx) error { return o.store.db.forget(ctx, tx) })
}

// untidy asks without writing, so that a transaction is begun only where it has something to do.
func (o *outboxSession) untidy(ctx context.Context) (yes bool, err error) {
	err = o.store.outboxRead(ctx, "tidy", func(ctx context.Context, q queryer) (err error) {
		yes, err = o.store.db.untidy(ctx, q)
		return err
	})
	return yes, err
}

// follow parks what came behind parked messages, in shards of which nothing is leased. Until then Lease passes it by.
func (o *outboxSession) follow(ctx context.Context) error {
	o.mu.Lock()
	held := o.held()
	o.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	var behind []int
	err := o.store.outboxRead(ctx, "tidy", func(ctx context.Context, q queryer) (err error) {
		behind, err = o.store.db.behind(ctx, q, held)
		return err
	})
	if err != nil || len(behind) == 0 {
		return err
	}
	sight := outboxSight{tokens: make(map[int]int64)}
	o.mu.Lock()
	for _, i := range behind {
		if s := o.shards[i]; s != nil {
			sight.tokens[i] = s.token
		}
	}
	next := o.next
	o.mu.Unlock()
	_, shards := o.choose(sight, 1)
	o.mu.Lock()
	o.next = next
	o.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	defer o.leased(shards, nil)
	tokens := make(map[int]int64, len(shards))
	for i, s := range shards {
		tokens[i] = s.token
	}
	return o.store.outboxTx(ctx, "tidy", func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.follow(ctx, tx, &o.hold, tokens)
	})
}
