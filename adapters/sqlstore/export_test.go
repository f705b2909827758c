package sqlstore

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// RunOut makes s believe that the window of rec is registered until then.
func (s *Store) RunOut(rec dedup.Record, until time.Time) {
	w := claims.WindowOf(rec)
	s.leases.Cover([]claims.Window{w}, until.Add(1000*time.Hour)) // forgets what it knew
	s.leases.Registered(w, until, time.Now())
}

// AnswerWithin bounds what should be answered at once.
func (s *Store) AnswerWithin(d time.Duration) { s.answerWithin = d }

// HasStandbys makes s believe that synchronous_standby_names is set: it cannot be without a standby, nor for one session.
func (s *Store) HasStandbys() { s.db.(*postgres).flush.Store(true) }

// Turn is the queue of writers in one process.
type Turn struct{ t *turn }

// NewTurn returns one.
func NewTurn(wait time.Duration) Turn { return Turn{newTurn(wait)} }

// Enter waits for its turn.
func (t Turn) Enter(ctx context.Context) (leave func(), err error) { return t.t.enter(ctx) }

// Crowd says that another process was writing. Call it between Enter and leave.
func (t Turn) Crowd() { t.t.crowd() }

// ErrNoTurn is its error.
var ErrNoTurn = errNoTurn
