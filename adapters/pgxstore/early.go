package pgxstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// With driver.WithLateClaim, fn of InTx runs before its message is claimed. If it only leaves statements and messages
// to the guard, one round trip has everything: BEGIN, the claim, the statements, the messages and COMMIT. The claim
// there fails if the message is not new, and the server then skips the rest.
//
// The guess may be wrong: the key has a row, another transaction holds it, the session is not as it was, or fn uses its
// transaction itself. Then nothing of fn was sent or nothing is committed, and InTx does everything again in the usual
// way. So the guess decides nothing. To keep wrong guesses rare, InTx does not guess for a message that was delivered
// before, that is old, or that comes in a run of duplicates, nor on a connection whose session it does not know, nor, but for
// one message in retries, after stopsAt wrong guesses.

// guessing counts the guesses since the last one that was right.
type guessing struct{ wrong atomic.Int64 }

// stopsAt is how many guesses in a row may be wrong. After that InTx guesses for one message in retries.
const stopsAt, retries = 4, 64

func (g *guessing) may() bool {
	return g.wrong.Load() < stopsAt || g.wrong.Add(1)%retries == 0
}

func (g *guessing) count(wrong bool) {
	switch {
	case !wrong && g.wrong.Load() > 0:
		g.wrong.Store(0)
	case wrong:
		g.wrong.Add(1)
	}
}

// ClaimsLate implements driver.LateClaimer. The pool's mode of pgx must say which errors come before anything is sent,
// and a hook that runs when a connection is acquired may change the session.
func (s *Store) ClaimsLate() bool { return s.describes && !s.hooks.acquire }

// youngest and oldest bound the age of a message that InTx guesses for, by this machine's clock. The horizon does not
// reach messages of that age, also when the clocks differ by driver.MaxClockSkew.
const (
	youngest = -time.Minute
	oldest   = dedup.MinWindow / 2
)

// errGuessed says that nothing was committed, and that InTx must claim in the usual way.
var errGuessed = errors.New("pgxstore: the guess that the message is new was wrong")

// guesses reports whether c may run fn before it claims.
func (c *claim) guesses(ctx context.Context) bool {
	if driver.LateClaim(ctx) == nil || len(c.Plan.Rows) != 1 || c.Look || driver.LockWaitsRefused(ctx) ||
		!c.store.describes || c.store.hooks.acquire {
		return false
	}
	rec, now := c.Plan.Rows[0].Record, c.Now()
	if age := now.Sub(rec.Time); !rec.Time.IsZero() && (age < youngest || age > oldest) {
		return false
	}
	known, ok := c.conn.PgConn().CustomData()[seenKey].(seen)
	if !ok || known.met.temps != noTemporaries || !c.Windows.Cover(c.Plan.Windows(), now.Add(driver.MaxClockSkew)) {
		return false
	}
	if !c.store.guessing.may() {
		return false
	}
	c.session = known.met
	return true
}

// guessWait is how long the claim of a guess waits for a transaction that holds the key. The claim in the usual way
// waits up to Config.ClaimTimeout, and that time does not count for Config.HandlerTimeout of the consumer.
const guessWait = "10ms"

// claimAndCommit sends everything in one round trip.
func (s *Store) claimAndCommit(ctx context.Context, c *claim, late lateWrites) (err error) {
	shards := int(s.shards.Load())
	if shards == 0 && len(late.messages) > 0 {
		return errGuessed
	}
	ctx, cancel := late.limited(ctx, s.cfg.ClaimTimeout+s.endWithin)
	defer cancel()
	b := &pgx.Batch{}
	c.queueBegin(b)
	b.Queue(s.sql.InsertNew, append(claimArgs(&c.Plan.Rows[0], c.idleLimit, s.cfg.Compact),
		guessWait, c.session.text(),
		pgtype.Timestamptz{Time: c.Now(), Valid: true}, driver.MaxClockSkew.Seconds())...)
	insertions := s.queueLate(b, &late, shards)
	results, err := c.begin(ctx, b)
	defer func() {
		_ = results.Close() // after an error, this lets the connection roll back
		err = late.late(ctx, err)
	}()
	if err == nil {
		_, err = results.Exec()
	}
	if err == nil {
		if err = readLate(results, &late, insertions); err == nil {
			s.repeats.count(false)
			s.history.Saw(c.session.server) // InsertNew has compared it
		}
		return err
	}
	switch refused, ok := errors.AsType[*pgconn.PgError](err); {
	case isUnencodable(err): // an argument of the handler's; nothing was sent
		return err
	case errors.As(err, new(pgx.ErrPreprocessingBatch)), pgconn.SafeToRetry(err), ok && severity(refused) == "ERROR":
		return errGuessed // nothing is committed, and the usual way says why
	}
	return unknownCommit(err)
}
