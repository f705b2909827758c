package pgxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/operator"
	"github.com/txonce/txonce/observe"
)

var _ ops.Store = operators{}

// Operator returns what operators ask and request of this store's database: see package consumer/ops.
func (s *Store) Operator() ops.Store { return operators{s.operator(), s} }

// operators is the ops.Store of a Store.
type operators struct {
	*operator.Service
	store *Store
}

// Activity returns what keeps the rates of consumers for dashboards: see ops.Recorder.
func (s *Store) Activity() ops.ActivityKeeper { return s.operator() }

func (s *Store) operator() *operator.Service {
	return &operator.Service{DB: operatorDB{s}, Letters: s, Queue: s.Outbox()}
}

// operatorDB implements operator.Database with the pool, through database/sql, so that all stores share the code above it.
type operatorDB struct{ store *Store }

// Statements implements operator.Database.
func (d operatorDB) Statements(ctx context.Context) (*dialect.Operator, error) {
	if err := d.store.resolve(ctx, d.store.cfg.Pool); err != nil {
		return nil, err
	}
	return &d.store.operations, nil
}

// operatorTimeout limits one step, because the callers may hold all of the pool's connections.
const operatorTimeout = 30 * time.Second

// Read implements operator.Database.
func (d operatorDB) Read(ctx context.Context, what string, f func(ctx context.Context, q operator.Queryer) error) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	db := stdlib.OpenDBFromPool(d.store.cfg.Pool)
	defer db.Close()
	return operatorError(what, f(ctx, db))
}

// Write implements operator.Database.
func (d operatorDB) Write(ctx context.Context, what string, f func(ctx context.Context, q operator.Queryer) error) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	db := stdlib.OpenDBFromPool(d.store.cfg.Pool)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return operatorError(what, err)
	}
	defer conn.Close() // gives it back to the pool
	err = d.write(ctx, conn, f)
	if blamesSession(err) {
		_ = conn.Raw(func(driver any) error {
			d.store.discard(ctx, driver.(*stdlib.Conn).Conn())
			return nil
		})
	}
	return operatorError(what, err)
}

func (d operatorDB) write(ctx context.Context, conn *sql.Conn, f func(ctx context.Context, q operator.Queryer) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	if _, err := tx.ExecContext(ctx, d.store.operations.Limits); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func operatorError(what string, err error) error {
	switch {
	case err == nil, errors.Is(err, ops.ErrExpected):
		return err
	case isUndefined(err):
		return database.Errorf("%w: %s: %w; %s", dedup.ErrSchema, what, err, howToMigrate)
	}
	return database.Errorf("pgxstore: %s: %w", what, err)
}

// TakeReplay implements driver.ReplayQueue.
func (s *Store) TakeReplay(ctx context.Context, name string, lease time.Duration) (*driver.RequestedReplay, consumer.DeadLetter, time.Duration, error) {
	return s.operator().TakeReplay(ctx, name, lease)
}

// ReturnReplay implements driver.ReplayQueue.
func (s *Store) ReturnReplay(ctx context.Context, action [16]byte, letter consumer.DeadLetterID, failed observe.Cause, text string, wait time.Duration) error {
	return s.operator().ReturnReplay(ctx, action, letter, failed, text, wait)
}

// SettleReplay implements driver.ReplayQueue.
func (s *Store) SettleReplay(ctx context.Context, tx pgx.Tx, action [16]byte, letter consumer.DeadLetter, outcome observe.Outcome) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	query, args := operator.Settlement(&s.operations, action, letter.ID, outcome)
	tag, err := tx.Exec(ctx, query, args...)
	if err != nil {
		return stepError("settle replay", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %v is not marked by action %v", consumer.ErrNotParked, letter.ID, action)
	}
	return s.TakeDeadLetter(ctx, tx, letter)
}

// DiscardLetter implements ops.LetterKeeper.
func (o operators) DiscardLetter(ctx context.Context, action ops.ActionID, letter consumer.DeadLetter) error {
	s := o.store
	recs, err := o.DiscardRecords(ctx, letter)
	if err != nil {
		return err
	}
	return s.InTx(ctx, recs, func(tx pgx.Tx, claims []dedup.Claim) error {
		query, args := operator.Discarded(&s.operations, action, &letter, claims)
		if _, err := tx.Exec(ctx, query, args...); err != nil {
			return stepError("discard letter", err)
		}
		return s.TakeDeadLetter(ctx, tx, letter)
	})
}
