package pgxstore

import (
	"context"
	"math"
	"time"

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/outbox"
)

// EndLease makes s believe that its registration ended at until, though by this machine's clock it has just registered.
func EndLease(s *Store, consumer string, window time.Duration, until time.Time) {
	w := claims.Window{Consumer: consumer, Seconds: int64(window / time.Second)}
	s.windowLeases.Cover([]claims.Window{w}, time.Now().AddDate(10, 0, 0)) // forgets it
	s.windowLeases.Registered(w, until, time.Now())
}

// SetClock gives s another clock of its machine.
func SetClock(s *Store, now func() time.Time) { s.now = now }

// SetPoolerWithin is for machines that are too slow to find out in time what a pooler does.
func SetPoolerWithin(s *Store, d time.Duration) { s.poolerWithin = d }

// Subscribe tells of commits on s alone.
func Subscribe(s *Store) (wake <-chan struct{}, stop func()) {
	sub, stop := s.wakes.subscribe()
	return sub.wake, stop
}

// Listen tells of commits anywhere.
func Listen(ctx context.Context, s *Store) (wake <-chan struct{}, stop func()) {
	sub, stop := s.listen(ctx)
	return sub.wake, stop
}

// HoldAllUntil says that a session on s holds all shards.
func HoldAllUntil(s *Store, t time.Time) { s.holdsAllUntil(t) }

// Mark is the seq before which a session of the tables looks in no shard.
func Mark(o outbox.Session) int64 {
	s := o.(*outboxSession)
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := int64(math.MaxInt64)
	for _, sh := range s.held {
		mark = min(mark, sh.low)
	}
	return mark
}

// SetEndWithin bounds COMMIT.
func SetEndWithin(s *Store, d time.Duration) { s.endWithin = d }

// IsDefinite reports that an error of COMMIT refuses it.
var IsDefinite = isDefinite

// CommitReplicated is COMMIT where synchronous standbys are configured.
var CommitReplicated = commitReplicated
