package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/wakes"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// outboxSession implements driver.Session on databases other than PostgreSQL. It keeps the leased messages in memory
// only: no other session may lease messages of a shard that it holds.
type outboxSession struct {
	store *Store
	wakes *wakes.Subscription
	leave func() (wait func(context.Context) error)

	renewing sync.Mutex  // Renew and Close run one at a time
	hold     engine.Hold // renewing guards hold.Begun
	ledger   shares.Ledger

	mu     sync.Mutex
	shards shares.Held
	next   int // the next Lease starts at this shard
}

// Open implements driver.Queue. It fails with dedup.ErrSchema if tables are missing.
func (s *Store) Open(ctx context.Context, opts outboxdriver.SessionOptions) (outboxdriver.Session, error) {
	if opts.TTL < time.Millisecond {
		return nil, fmt.Errorf("sqlstore: SessionOptions.TTL %v is shorter than 1 ms", opts.TTL)
	}
	if err := s.db.Tables.CheckSession(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := claims.NumbersAtStart(ctx, s.checkNumbers); err != nil {
		return nil, err
	}
	commits, leave := s.subscribe(ctx)
	if relay := s.db.Outbox.Relay; relay != nil {
		return s.openPostgres(relay, opts, commits, leave), nil
	}
	o := &outboxSession{
		store: s, wakes: commits, leave: leave,
		hold:   engine.Hold{Name: columns.Text(opts.Name), TTL: opts.TTL},
		shards: shares.Held{},
	}
	rand.Read(o.hold.Owner[:]) // never fails
	return o, nil
}

// Wake implements driver.Waker.
func (o *outboxSession) Wake() <-chan struct{} { return o.wakes.Wake() }

// collisions limits how often a transaction is attempted that ends in deadlocks.
const collisions = 5

// outboxTx runs f in a short transaction, and repeats it after a deadlock.
func (s *Store) outboxTx(ctx context.Context, what string, f func(ctx context.Context, tx *sql.Tx) error) (err error) {
	for range collisions {
		if err = s.outboxTxOnce(ctx, what, f); err == nil || !s.fault(err).Collided {
			return err
		}
	}
	return err
}

func (s *Store) outboxTxOnce(ctx context.Context, what string, f func(ctx context.Context, tx *sql.Tx) error) error {
	t, err := s.begin(ctx, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer t.close()
	ctx, cancel := context.WithTimeout(ctx, 3*s.answerWithin)
	defer cancel()
	if err := f(ctx, t.Tx); err != nil {
		t.Spoilt = s.fault(err).ReadOnly
		return s.outboxError(what, err)
	}
	if err := ctx.Err(); err != nil {
		return s.outboxError(what, err)
	}
	return s.outboxError(what, t.commit())
}

func (s *Store) outboxRunner(what string) engine.Run {
	return func(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
		return s.outboxTx(ctx, what, f)
	}
}

// outboxRead runs f, which only reads.
func (s *Store) outboxRead(ctx context.Context, what string,
	f func(ctx context.Context, q engine.Queryer) error,
) error {
	if err := s.locate(ctx, nil); err != nil {
		return s.outboxError(what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
	defer cancel()
	if relay := s.db.Outbox.Relay; relay != nil {
		return s.outboxError(what, relay.Reading(ctx, f))
	}
	return s.outboxError(what, s.db.Outbox.Leases.Reading(ctx, f))
}

func (s *Store) outboxError(what string, err error) error {
	switch {
	case err == nil, engine.Database.Caused(err):
		return err
	case errors.Is(err, outboxdriver.ErrLeaseLost):
		return fmt.Errorf("sqlstore: %s: %w", what, err)
	}
	if s.fault(err).Class == driver.FaultData {
		err = fmt.Errorf("%w: %w", outboxdriver.ErrRefused, err)
	}
	return engine.Database.Wrap(s.statementError(fmt.Errorf("%s: %w", what, err)))
}

// held returns the shards in the order that Lease uses. The caller holds o.mu.
func (o *outboxSession) held() []int {
	shards := o.shards.Numbers()
	first, _ := slices.BinarySearch(shards, o.next)
	return slices.Concat(shards[first:], shards[:first])
}

// Close implements driver.Session. It gives back the shards before it waits for Config.Outbox.Listen.
func (o *outboxSession) Close(ctx context.Context) error {
	listened := o.leave()
	o.renewing.Lock()
	defer o.renewing.Unlock()
	o.mu.Lock()
	clear(o.shards)
	o.mu.Unlock()
	err := o.store.outboxTx(ctx, "close", func(ctx context.Context, tx *sql.Tx) error {
		return o.store.db.Outbox.Holds.Leave(ctx, tx, &o.hold)
	})
	return errors.Join(err, listened(ctx))
}
