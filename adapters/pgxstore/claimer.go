package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// claimer makes claims. The windows of their consumers are registered before that.
type claimer struct {
	*writer
	leases   claims.Leases
	history  claims.History   // of the servers that claims have met
	now      func() time.Time // this machine's clock; tests replace it
	idle     any              // IdleInTxTimeout in the server's format; nil: no limit
	repeats  repeats
	guessing guessing
}

func newClaimer(w *writer) *claimer {
	c := &claimer{writer: w, now: time.Now}
	if limit := w.cfg.IdleInTxTimeout; limit > 0 {
		c.idle = fmt.Sprintf("%dms", limit.Milliseconds())
	}
	return c
}

// newClaim returns a claim that begins its transaction on conn. If conn is nil, the caller sets the transaction.
func (c *claimer) newClaim(plan *claims.Plan, conn *pgx.Conn) *claim {
	made := &claim{
		Claim: claims.Claim{Owner: database, Plan: plan, Windows: &c.leases, Now: c.now}, store: c,
		conn: conn,
	}
	if conn != nil {
		made.idleLimit = c.idle
	}
	return made
}

// useWindows registers the windows of plan before the first claim uses them, and again before their registrations
// expire. It uses a separate connection, because a registration must not roll back with another transaction.
func (c *claimer) useWindows(ctx context.Context, plan *claims.Plan) error {
	return c.leases.Use(c.leases.Due(plan.Windows(), time.Now()), func(w claims.Window) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.ClaimTimeout)
		defer cancel()
		return c.use(ctx, w)
	})
}

func (c *claimer) use(ctx context.Context, w claims.Window) (until time.Time, err error) {
	conn, err := c.cfg.Pool.Acquire(ctx)
	if err == nil {
		err = conn.QueryRow(ctx, c.sql.UseWindow, w.Consumer, w.Seconds, driver.UseFor.Seconds()).Scan(&until)
		c.release(ctx, conn, err)
	}
	switch {
	case isUndefined(err):
		return until, claimError(err)
	case err != nil:
		return until, database.Errorf("pgxstore: register consumer %q: %w", w.Consumer, err)
	}
	return until, nil
}
