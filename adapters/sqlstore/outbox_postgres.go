package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/internal/wakes"
	"github.com/txonce/txonce/outbox/driver"
)

// postgresSession implements driver.Session on PostgreSQL.
type postgresSession struct {
	*pgrelay.Session
	leave func() (wait func(context.Context) error)
}

func (s *Store) openPostgres(
	relay engine.Relay, opts driver.SessionOptions, commits *wakes.Subscription,
	leave func() (wait func(context.Context) error),
) driver.Session {
	return &postgresSession{leave: leave, Session: pgrelay.Open(pgrelay.Config{
		Conns: relayLink{s, relay}, SQL: relay.RelayStatements(), KeepSent: s.cfg.Outbox.KeepSent, Name: opts.Name,
		TTL:   opts.TTL,
		Wakes: commits, Announced: s.listens, Wake: s.Wake, HoldsAll: func(time.Time) {},
	})}
}

// Close implements driver.Session. It gives back the shards before it waits for Config.Outbox.Listen.
func (o *postgresSession) Close(ctx context.Context) error {
	listened := o.leave()
	err := o.Session.Close(ctx)
	return errors.Join(err, listened(ctx))
}

// relayLink implements pgrelay.Conns with connections of Config.DB, on which the relay's settings last for one
// transaction.
type relayLink struct {
	store *Store
	relay engine.Relay
}

// Transact implements pgrelay.Database.
func (l relayLink) Transact(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	return l.Together(ctx, operation, func(ctx context.Context,
		run pgrelay.Run,
	) error {
		return run(ctx, operation, steps...)
	})
}

// Hold implements pgrelay.Conns.
func (l relayLink) Hold(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	return l.Transact(ctx, operation, steps...)
}

// Together implements pgrelay.Conns.
func (l relayLink) Together(ctx context.Context, operation string, f func(context.Context, pgrelay.Run) error) error {
	settings := pgrelay.Step{SQL: l.relay.RelayStatements().Settings}
	return l.store.outboxTx(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		if err := l.relay.Send(ctx, tx, settings); err != nil {
			return err
		}
		return f(ctx, func(ctx context.Context, _ string, steps ...pgrelay.Step) error {
			return l.relay.Send(ctx, tx, steps...)
		})
	})
}

// Read implements pgrelay.Database.
func (l relayLink) Read(ctx context.Context, operation string, step pgrelay.Step) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.cfg.ClaimTimeout+l.store.answerWithin)
	defer cancel()
	return l.store.outboxError(operation, l.relay.Send(ctx, l.store.cfg.DB, step))
}
