package pgxstore

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/claims"
)

// SetFlush says whether a synchronous standby is configured.
func SetFlush(s *Store, on bool) { s.flush.Store(on) }

// EndLease makes s believe that its registration ended at until, though by this machine's clock it has just registered.
func EndLease(s *Store, consumer string, window time.Duration, until time.Time) {
	w := claims.Window{Consumer: consumer, Seconds: int64(window / time.Second)}
	s.leases.Cover([]claims.Window{w}, time.Now().AddDate(10, 0, 0)) // forgets it
	s.leases.Registered(w, until, time.Now())
}

// Flush reports whether duplicates write WAL.
func Flush(s *Store) bool { return s.flush.Load() }

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
