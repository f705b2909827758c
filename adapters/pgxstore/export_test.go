package pgxstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/operator"
	"github.com/txonce/txonce/outbox/driver"
)

// EndLease makes s believe that its registration ended at until, although it was just registered by this machine's
// clock.
func EndLease(s *Store, consumer string, window time.Duration, until time.Time) {
	w := claims.Window{Consumer: consumer, Seconds: int64(window / time.Second)}
	s.leases.Cover([]claims.Window{w}, time.Now().AddDate(10, 0, 0)) // this forgets the registration
	s.leases.Registered(w, until, time.Now())
}

// SetClock replaces the clock of s's machine.
func SetClock(s *Store, now func() time.Time) { s.now = now }

// SetPoolerWithin extends the limit of the pooler's check for slow machines.
func SetPoolerWithin(s *Store, d time.Duration) { s.pooler.within = d }

// Subscribe subscribes to commits through s only.
func Subscribe(s *Store) (wake <-chan struct{}, stop func()) {
	sub, stop := s.wakes.Subscribe()
	return sub.Wake(), stop
}

// Listen subscribes to commits through any Store.
func Listen(ctx context.Context, s *Store) (wake <-chan struct{}, stop func()) {
	sub, leave := s.listener.listen(ctx)
	return sub.Wake(), func() { leave(context.WithoutCancel(ctx)) }
}

// ListenForShards subscribes like Listen. take returns the shards of the notifications since its last call; all means
// any shard.
func ListenForShards(ctx context.Context, s *Store) (wake <-chan struct{}, take func() (shards []int, all bool), stop func()) {
	sub, leave := s.listener.listen(ctx)
	return sub.Wake(), sub.Take, func() { leave(context.WithoutCancel(ctx)) }
}

// RelayPool returns the session's own connections; nil: it uses those of Config.Pool.
func RelayPool(o driver.Session) *pgxpool.Pool {
	if conns := o.(*outboxSession).link.conns.Load(); conns != nil {
		return conns.pool
	}
	return nil
}

// MaintainedAgo makes the session believe that Maintain was last called d earlier than it was.
func MaintainedAgo(o driver.Session, d time.Duration) {
	o.(*outboxSession).MaintainedAgo(d)
}

// HoldAllUntil makes s believe that one of its sessions holds all shards.
func HoldAllUntil(s *Store, t time.Time) { s.holdsAllUntil(t) }

// LowWatermark returns the lowest watermark of the session's shards: no Lease reads messages with a smaller seq.
func LowWatermark(o driver.Session) int64 {
	lows, _ := o.(*outboxSession).Starts()
	return slices.Min(lows)
}

// Skip returns the highest seq that a Lease begins at in one of the session's shards because the messages below wait.
func Skip(o driver.Session) int64 {
	_, skips := o.(*outboxSession).Starts()
	return slices.Max(skips)
}

// SetEndWithin sets the limit for COMMIT.
func SetEndWithin(s *Store, d time.Duration) { s.endWithin = d }

// SetStallsAfter sets how long handlers in Interleave may wait while nothing happens.
func SetStallsAfter(s *Store, d time.Duration) { s.patience.StallsAfter = d }

// SetLingers sets how long Interleave waits for handlers that do something else before it sends statements.
func SetLingers(s *Store, d time.Duration) { s.patience.Lingers = d }

const idleSetting = `SELECT current_setting('idle_in_transaction_session_timeout')`

// OperatorIdleLimit returns how long a transaction of an operator's request may be idle.
func OperatorIdleLimit(ctx context.Context, s *Store) (limit string, err error) {
	if _, err := (operatorDB{s.sessions}).Statements(ctx); err != nil {
		return "", err
	}
	return limit, operatorDB{s.sessions}.Write(ctx, "test", func(ctx context.Context, q operator.Queryer) error {
		rows, err := q.QueryContext(ctx, idleSetting)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			err = rows.Scan(&limit)
		}
		return errors.Join(err, rows.Err())
	})
}

// SweepIdleLimit returns how long a transaction may be idle that sweeps.
func SweepIdleLimit(ctx context.Context, s *Store) (limit string, err error) {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return "", err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	var clock time.Time
	_, _, tx, err := s.sweepLease(ctx, conn.Conn(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 1}, &clock)
	if err != nil {
		return "", err
	}
	defer rollback(ctx, tx)
	err = tx.QueryRow(ctx, idleSetting).Scan(&limit)
	return limit, err
}

// IsDefinite reports whether an error of COMMIT says that COMMIT was refused.
var IsDefinite = isDefinite

// CommitReplicated sends COMMIT when synchronous standbys are configured.
var CommitReplicated = commitReplicated

// ErrSwallowed says that a statement failed and the handler returned nil.
var ErrSwallowed = errSwallowed
