package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// InTx implements dedup.Store. If all keys have rows already, the transaction of fn begins when fn first uses it.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	plan, err := claims.NewPlan(recs)
	if err != nil {
		return err
	}
	guessed := false
	for range claims.Attempts + 1 {
		var again bool
		if again, err = s.inTx(ctx, plan, guessed, fn); !again {
			return err
		}
		guessed = guessed || errors.Is(err, errGuessed)
	}
	return database.Errorf("pgxstore: %w", err)
}

// inTx makes one attempt. If again is true, the claim was rolled back before fn ran and must be repeated; or fn ran
// before the claim, and nothing of it is committed. guessed says that fn did so in an earlier attempt.
func (s *Store) inTx(ctx context.Context, plan *claims.Plan, guessed bool,
	fn func(tx pgx.Tx, answers []dedup.Claim) error,
) (again bool, err error) {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return false, err
	}
	if err := s.useWindows(ctx, plan); err != nil {
		return false, err
	}
	if s.spare != nil {
		select {
		case s.spare <- struct{}{}:
			defer func() { <-s.spare }()
		case <-ctx.Done():
			return false, database.Errorf("pgxstore: connect: %w", ctx.Err())
		}
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return false, database.Errorf("pgxstore: connect: %w", err)
	}
	defer conn.Release()
	c := s.newClaim(plan, conn.Conn())
	c.Look = len(plan.Rows) > 0 && (plan.Redelivered() || s.repeats.likely() || guessed)
	defer func() { // this also runs when fn panics or calls Goexit; after COMMIT it does nothing
		if c.tx != nil {
			rollback(ctx, c.tx)
		}
	}()
	if !guessed && c.guesses(ctx) {
		c.early = true
		err := s.handle(ctx, c, []dedup.Claim{{Verdict: dedup.First}}, fn)
		wrong := errors.Is(err, errGuessed)
		if s.guessing.count(wrong); wrong {
			driver.LateClaim(ctx)()
		}
		return wrong, err
	}
	answers, err := c.Make(ctx, c)
	unfit := false
	if err == nil {
		err = c.fits(ctx)
		unfit = err != nil // a newer connection may pass
	}
	if err != nil {
		if unfit || blamesSession(err) {
			s.discard(ctx, conn.Conn())
		}
		return errors.Is(err, claims.ErrAgain), err
	}
	if len(answers) > 0 {
		s.repeats.count(len(c.Inserted) == 0)
	}
	return false, s.handle(ctx, c, answers, fn)
}

// handle runs fn in the transaction of the claim, and then commits that transaction.
func (s *Store) handle(ctx context.Context, c *claim, answers []dedup.Claim,
	fn func(tx pgx.Tx, answers []dedup.Claim) error,
) error {
	g := &guard{c: c, ctx: ctx}
	g.failures.conn, g.points.shared = c.conn, len(answers) > 1
	g.failures.begin()
	defer g.leave(ctx)
	tx := &guarded{Tx: c.tx, g: g}
	switch {
	case c.early:
		g.begin = func(context.Context) error { return errGuessed }
	case c.tx == nil:
		g.begin = func(ctx context.Context) error { return c.openFor(ctx, tx) }
	}
	if c.tx != nil && driver.LockWaitsRefused(ctx) {
		if _, err := c.tx.Exec(ctx, dialect.PostgresShortLockWaits, pgx.QueryExecModeSimpleProtocol); err != nil {
			return database.Errorf("pgxstore: limit waits for locks: %w", err)
		}
	}
	switch err := fn(tx, answers); {
	case g.use.end(c.conn):
		return g.lookBack(ctx, cmp.Or(err, errInUse))
	case c.early && (err != nil || !g.notBegun()): // nothing was sent, and the handler may have got a duplicate
		return errGuessed
	case err != nil:
		return g.lookBack(ctx, g.blame(err))
	}
	if err := g.finish(ctx); err != nil {
		return g.lookBack(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgxstore: not committed: %w", err)
	}
	late, begun := g.shut()
	var err error
	switch {
	case c.early:
		err = s.claimAndCommit(ctx, c, late)
	case begun:
		err = s.commit(ctx, c.tx, late, c.standbys)
	default: // fn has done nothing, and neither has the claim
		return nil
	}
	if err != nil {
		_ = g.failures.note(err) // it may be of the handler's statements
		if isIdle(err) {         // the server had already ended the transaction
			return idleError(s.cfg.IdleInTxTimeout, err)
		}
		return err
	}
	for _, up := range late.wakes {
		up.writer.wake(ctx, up.shards)
	}
	return nil
}
