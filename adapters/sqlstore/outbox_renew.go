package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Renew implements outbox.Session.
func (o *outboxSession) Renew(ctx context.Context) (outbox.Hold, error) {
	o.renewing.Lock()
	defer o.renewing.Unlock()
	var share outboxShare
	var asked time.Time
	err := o.store.outboxTx(ctx, "renew", func(ctx context.Context, tx *sql.Tx) (err error) {
		asked = time.Now() // the transaction may have waited for its turn
		share, err = o.store.db.renew(ctx, tx, &o.hold)
		return err
	})
	if err != nil {
		return outbox.Hold{}, err
	}
	o.hold.begun = true
	o.note(share)
	if share.shards == 0 {
		return outbox.Hold{}, errNoShards
	}
	share.relays = max(share.relays, 1) // by now this one's time may be over again
	switch mine, fair := len(share.tokens), share.fair(); {
	case mine < fair && share.free > 0:
		err = o.takeFree(ctx, fair-mine)
	case mine > fair:
		err = o.giveBack(ctx, mine-fair)
	}
	if err != nil {
		return outbox.Hold{}, err // the hold is extended, and the next Renew sees what has become of the shards
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return outbox.Hold{
		Until: asked.Add(o.hold.ttl), Shards: len(o.shards),
		Of: share.shards, Relays: share.relays, Namesakes: share.namesakes,
	}, nil
}

// note remembers what the database says is held.
func (o *outboxSession) note(share outboxShare) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, s := range o.shards {
		s.leaving = false
		if token, held := share.tokens[i]; !held || token != s.token {
			delete(o.shards, i)
		}
	}
	o.add(share.tokens)
}

// add remembers shards that are held. The caller holds mu.
func (o *outboxSession) add(tokens map[int]int64) {
	for i, token := range tokens {
		if o.shards[i] == nil {
			o.shards[i] = &outboxShard{token: token}
		}
	}
}

// takeFree takes up to n shards that nobody living holds.
func (o *outboxSession) takeFree(ctx context.Context, n int) error {
	var tokens map[int]int64
	err := o.store.outboxTx(ctx, "take shards", func(ctx context.Context, tx *sql.Tx) (err error) {
		tokens, err = o.store.db.take(ctx, tx, &o.hold, n)
		return err
	})
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(tokens)
	return nil
}

// giveBack gives back n shards: those at once of which nothing is leased. If there are too few, others get nothing new, so
// that the next Renew finds them idle.
func (o *outboxSession) giveBack(ctx context.Context, n int) error {
	var shards []int
	o.mu.Lock()
	for i, s := range o.shards {
		if len(shards) < n && s.idle() {
			shards = append(shards, i)
			delete(o.shards, i) // a Lease from now on does not look at it
		}
	}
	n -= len(shards)
	for _, s := range o.shards {
		if s.leaving = n > 0; s.leaving {
			n--
		}
	}
	o.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	return o.store.outboxTx(ctx, "give back shards", func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.giveBack(ctx, tx, &o.hold, shards)
	})
}
