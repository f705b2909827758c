package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// With driver.WithLateClaim, fn of InTx runs before its message is claimed. If it only leaves statements and messages
// to the guard, one round trip has everything: BEGIN, the claim, the statements, the messages and COMMIT. The claim
// there fails if the key has a row, and the server then skips the rest. If fn sends a statement itself, the claim is
// made before that as always.
//
// The guess may be wrong: the key has a row, another transaction holds it, the session is not as it was. Then nothing
// of fn is committed, and InTx does everything again in the usual way. So the guess decides nothing. To keep wrong
// guesses rare, InTx does not guess for a message that was delivered before, that is old, or that comes in a run of
// duplicates, nor on a connection whose session it does not know.

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
	if !driver.LateClaim(ctx) || len(c.Plan.Rows) != 1 || c.Look || driver.LockWaitsRefused(ctx) ||
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
	c.session = known.met
	return true
}

// makeFor begins the transaction of c for the handler, which has got tx and sends a statement itself.
func (c *claim) makeFor(ctx context.Context, tx *guarded) error {
	answers, err := c.Make(ctx, c)
	if err == nil {
		err = c.fits(ctx)
	}
	tx.Tx = c.tx
	if err != nil || answers[0].Verdict != dedup.First {
		c.guessed = true // InTx finds the same, and says why
		return errGuessed
	}
	return nil
}

// claimAndCommit sends everything in one round trip.
func (s *Store) claimAndCommit(ctx context.Context, c *claim, late lateWrites) (err error) {
	shards := int(s.shards.Load())
	if shards == 0 && len(late.messages) > 0 {
		return errGuessed
	}
	wait, _ := driver.ClaimWait(ctx, s.cfg.ClaimTimeout)
	ctx, cancel := late.limited(ctx, s.cfg.ClaimTimeout+s.endWithin)
	defer cancel()
	b := &pgx.Batch{}
	c.queueBegin(b)
	b.Queue(s.sql.InsertNew, append(claimArgs(&c.Plan.Rows[0], c.idleLimit, s.cfg.Compact),
		fmt.Sprintf("%dms", max(wait.Milliseconds(), 1)), c.session.String(),
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
		}
		return err
	}
	switch code := sqlState(err); {
	case code == "55P03", code == "57014", code == "25P04": // another transaction holds the key
		return claimError(err)
	case isUnencodable(err): // an argument of the handler's; nothing was sent
		return err
	case errors.As(err, new(pgx.ErrPreprocessingBatch)), code != "" && isDefinite(err): // the usual way says why
		return errGuessed
	}
	return unknownCommit(err)
}
