package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/pgrelay"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// inBatch returns a pgrelay.Run that sends the steps by tx, which is outboxSession.tx, outboxSession.holdTx or Store.outboxTx.
func inBatch(tx func(ctx context.Context, operation string, queue func(*pgx.Batch)) error) pgrelay.Run {
	return func(ctx context.Context, operation string, steps ...pgrelay.Step) error {
		return tx(ctx, operation, func(b *pgx.Batch) { queueSteps(b, steps) })
	}
}

func queueSteps(b *pgx.Batch, steps []pgrelay.Step) {
	for _, step := range steps {
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

// outboxRead implements pgrelay.Run for one statement that only reads, on a connection of the application and without the relay's settings.
func (s *Store) outboxRead(ctx context.Context, operation string, steps ...pgrelay.Step) error {
	b := &pgx.Batch{}
	queueSteps(b, steps)
	return s.outboxError(operation, s.cfg.Pool.SendBatch(ctx, b).Close())
}

// tx sends the statements that queue adds to the database, as outboxTx does, on a connection of the relay where there is one.
func (s *outboxSession) tx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	if conns := s.conns.Load(); conns != nil {
		done, err := conns.work(ctx)
		if err != nil {
			return database.Errorf("pgxstore: outbox: %s: wait for a connection: %w", operation, err)
		}
		defer done()
	}
	return s.holdTx(ctx, operation, queue)
}

// holdTx is tx for statements that take, keep or give back shards. They do not wait for those that lease and settle messages.
func (s *outboxSession) holdTx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	conns := s.conns.Load()
	if conns == nil {
		return s.store.outboxTx(ctx, operation, queue)
	}
	b := &pgx.Batch{}
	queue(b)
	if b.Len() > 1 { // a statement alone is a transaction
		all := &pgx.Batch{}
		all.Queue(beginOutbox)
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		all.Queue(`COMMIT`)
		b = all
	}
	return s.store.sendOutbox(ctx, conns.pool, operation, b)
}

const beginOutbox = `BEGIN ISOLATION LEVEL READ COMMITTED`

// outboxTx sends the statements that queue adds, as one transaction in one round trip, so that a process that freezes leaves no
// transaction open. It uses a connection of the application, so the relay's settings last for this transaction only.
func (s *Store) outboxTx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue(beginOutbox)
	b.Queue(s.outbox.Settings)
	queue(b)
	b.Queue(`COMMIT`)
	return s.sendOutbox(ctx, s.cfg.Pool, operation, b)
}

func (s *Store) sendOutbox(ctx context.Context, pool *pgxpool.Pool, operation string, b *pgx.Batch) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: outbox: %s: connect: %w", operation, err)
	}
	defer func() { s.release(ctx, conn, err) }()
	err = conn.SendBatch(ctx, b).Close()
	if (conn.Conn().IsClosed() || blamesSession(err)) && pool != s.cfg.Pool {
		pool.Reset() // after a failover the others are lost too, and each could take as long to fail as a Renew may last
	}
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // otherwise the pool would close the connection
	}
	return s.outboxError(operation, err)
}

// outboxError classifies an error of the relay's statements, which no message can cause.
func (s *Store) outboxError(operation string, err error) error {
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
