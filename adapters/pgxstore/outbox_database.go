package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/pgrelay"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

var (
	_ pgrelay.Conns    = (*relayLink)(nil)
	_ pgrelay.Database = outboxDatabase{}
)

const beginOutbox = `BEGIN ISOLATION LEVEL READ COMMITTED`

// outboxDatabase runs statements on connections of the application.
type outboxDatabase struct{ *sessions }

// Transact implements pgrelay.Database. It sends the transaction in one round trip, so that a process that freezes
// leaves no transaction open. The relay's settings last for this transaction only.
func (d outboxDatabase) Transact(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	b := &pgx.Batch{}
	b.Queue(beginOutbox)
	b.Queue(d.outbox.Settings)
	queueSteps(b, steps)
	b.Queue(`COMMIT`)
	return d.send(ctx, d.cfg.Pool, operation, b)
}

// Read implements pgrelay.Database.
func (d outboxDatabase) Read(ctx context.Context, operation string, step pgrelay.Step) error {
	b := &pgx.Batch{}
	queueSteps(b, []pgrelay.Step{step})
	return outboxError(operation, d.cfg.Pool.SendBatch(ctx, b).Close())
}

// relayLink runs the statements of a session.
type relayLink struct {
	outboxDatabase
	conns atomic.Pointer[relayPool] // the relay's own connections; nil: those of the application
}

// Transact implements pgrelay.Database like outboxDatabase, on a connection of the relay where there is one.
func (l *relayLink) Transact(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	if conns := l.conns.Load(); conns != nil {
		done, err := conns.work(ctx)
		if err != nil {
			return database.Errorf("pgxstore: outbox: %s: wait for a connection: %w", operation, err)
		}
		defer done()
	}
	return l.Hold(ctx, operation, steps...)
}

// Hold implements pgrelay.Conns.
func (l *relayLink) Hold(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	conns := l.conns.Load()
	if conns == nil {
		return l.outboxDatabase.Transact(ctx, operation, steps...)
	}
	b := &pgx.Batch{}
	if len(steps) == 1 { // a statement alone is a transaction
		queueSteps(b, steps)
	} else {
		b.Queue(beginOutbox)
		queueSteps(b, steps)
		b.Queue(`COMMIT`)
	}
	return l.send(ctx, conns.pool, operation, b)
}

// Together implements pgrelay.Conns. Each statement is one round trip, without a transaction around them.
func (l *relayLink) Together(ctx context.Context, _ string, f func(context.Context, pgrelay.Run) error) error {
	return f(ctx, l.Transact)
}

func queueSteps(b *pgx.Batch, steps []pgrelay.Step) {
	for _, step := range steps {
		if step.Sending != nil {
			step.Sending()
		}
		query := b.Queue(step.SQL, step.Args...)
		switch {
		case step.Row != nil:
			query.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := step.Row(rows); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		case step.Changed != nil:
			query.Exec(func(tag pgconn.CommandTag) error {
				step.Changed(tag.RowsAffected())
				return nil
			})
		}
	}
}

func (d outboxDatabase) send(ctx context.Context, pool *pgxpool.Pool, operation string, b *pgx.Batch) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: outbox: %s: connect: %w", operation, err)
	}
	defer func() { d.release(ctx, conn, err) }()
	err = conn.SendBatch(ctx, b).Close()
	if (conn.Conn().IsClosed() || blamesSession(err)) && pool != d.cfg.Pool {
		// after a failover the others are lost too, and each could take as long to fail as a Renew may last
		pool.Reset()
	}
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // otherwise the pool would close the connection
	}
	return outboxError(operation, err)
}

// outboxError classifies an error of the relay's statements, which no message can cause.
func outboxError(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outboxdriver.ErrLeaseLost):
		return err
	case isUndefined(err):
		return database.Errorf("%w: outbox: %s: %w; %s", dedup.ErrSchema, operation, err, howToMigrate)
	case class(err) == driver.FaultData:
		err = fmt.Errorf("%w: %w", outboxdriver.ErrRefused, err)
	}
	return database.Errorf("pgxstore: outbox: %s: %w", operation, err)
}
