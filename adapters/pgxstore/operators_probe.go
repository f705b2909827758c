package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/claims"
)

const (
	probeWait  = time.Second            // for a transaction that holds the key
	holderWait = 200 * time.Millisecond // until it is asked which one that is
)

// Probe implements ops.Prober.
func (o operators) Probe(ctx context.Context, rec dedup.Record) (p ops.Probe, err error) {
	plan, err := claims.NewPlan([]dedup.Record{rec})
	if err != nil {
		return p, err
	}
	for range claims.Attempts {
		if p, err = o.probe(ctx, plan); !errors.Is(err, claims.ErrAgain) {
			return p, err
		}
	}
	return p, database.Errorf("pgxstore: probe: %w", err)
}

func (o operators) probe(ctx context.Context, plan *claims.Plan) (p ops.Probe, err error) {
	s := o.claimer
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return p, err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return p, database.Errorf("pgxstore: probe: connect: %w", err)
	}
	defer func() { s.release(ctx, conn, err) }()
	c := s.newClaim(plan, conn.Conn())
	c.AssumeRegistered()
	defer func() {
		if c.tx != nil {
			rollback(ctx, c.tx)
		}
	}()
	asking, cancel := context.WithCancel(ctx)
	held := make(chan *ops.Holder, 1)
	go func() { held <- s.holder(asking, conn.Conn().PgConn()) }()
	answers, err := c.Make(driver.WithClaimWait(ctx, probeWait), c)
	cancel()
	holder := <-held
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		return ops.Probe{InFlight: true, Holder: holder}, nil
	case err != nil:
		return p, err
	}
	return ops.Probe{Claim: answers[0]}, nil
}

// holder finds the transaction that the session of conn waits for. nil: it waits for none, or that cannot be found out.
func (c *claimer) holder(ctx context.Context, conn *pgconn.PgConn) *ops.Holder {
	pid := conn.PID()                                           // read before the connection is busy
	if c.pooled.Load() || await.Sleep(ctx, holderWait) != nil { // behind a pooler it is the pooler's number
		return nil
	}
	h, now := ops.Holder{}, time.Time{}
	err := c.cfg.Pool.QueryRow(ctx, c.plain.Holder, int64(pid)).Scan(&h.PID, &h.Since, &now, &h.State, &h.Client)
	if err != nil {
		return nil
	}
	h.Age = max(now.Sub(h.Since), 0)
	return &h
}
