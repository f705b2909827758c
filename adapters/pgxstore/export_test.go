package pgxstore

import (
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
