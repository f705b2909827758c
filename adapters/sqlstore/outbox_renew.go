package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Renew implements driver.Session.
func (o *outboxSession) Renew(ctx context.Context) (driver.Hold, error) {
	o.renewing.Lock()
	defer o.renewing.Unlock()
	var state shares.State
	var asked time.Time
	err := o.store.outboxTx(ctx, "renew", func(ctx context.Context, tx *sql.Tx) (err error) {
		asked = time.Now() // not earlier: begin may have waited
		state, err = o.store.db.Outbox.Holds.Renew(ctx, tx, &o.hold)
		return err
	})
	if err != nil {
		return driver.Hold{}, err
	}
	o.hold.Begun = true
	o.mu.Lock()
	o.shards.Set(state.Tokens)
	o.mu.Unlock()
	if state.Shards == 0 {
		return driver.Hold{}, engine.ErrNoShards
	}
	switch change := state.Change(&o.ledger); {
	case change > 0:
		err = o.takeFree(ctx, change)
	case change < 0:
		err = o.giveBack(ctx, -change)
	}
	if err != nil {
		return driver.Hold{}, err // the hold is extended; the next Renew reads which shards it has
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return driver.Hold{
		Until: asked.Add(o.hold.TTL), Shards: len(o.shards),
		TotalShards: state.Shards, Relays: 1 + len(state.Others), SameName: state.SameName,
		Announced: o.store.listens(),
	}, nil
}

// takeFree takes up to n shards that no live session holds.
func (o *outboxSession) takeFree(ctx context.Context, n int) error {
	var tokens map[int]int64
	err := o.store.outboxTx(ctx, "take shards", func(ctx context.Context, tx *sql.Tx) (err error) {
		tokens, err = o.store.db.Outbox.Holds.TakeShards(ctx, tx, &o.hold, n)
		return err
	})
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shards.Add(tokens)
	return nil
}

// giveBack releases n shards. It releases shards without leased messages at once. If there are too few of those, it
// marks others as leaving: Lease skips them, and they are released once their leased messages are settled.
func (o *outboxSession) giveBack(ctx context.Context, n int) error {
	o.mu.Lock()
	idle := o.shards.GiveBack(n)
	o.mu.Unlock()
	return o.giveBackNow(ctx, idle)
}

// giveBackLeaving releases leaving shards that have no leased messages any more. If it fails, the next Renew finds that
// the session still holds them.
func (o *outboxSession) giveBackLeaving(ctx context.Context) {
	o.mu.Lock()
	idle := o.shards.RemoveLeaving()
	o.mu.Unlock()
	_ = o.giveBackNow(ctx, idle)
}

func (o *outboxSession) giveBackNow(ctx context.Context, idle []int) error {
	if len(idle) == 0 {
		return nil
	}
	return o.store.outboxTx(ctx, "give back shards", func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.Outbox.Holds.GiveBack(ctx, tx, &o.hold, idle)
	})
}
