package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/operator"
	"github.com/txonce/txonce/observe"
)

var (
	_ driver.ReplayQueue[*sql.Tx] = (*Store)(nil)
	_ ops.Store                   = operators{}
)

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

// operatorDB implements operator.Database and positions.Database.
type operatorDB struct{ store *Store }

// Statements implements operator.Database.
func (d operatorDB) Statements(ctx context.Context) (*dialect.Operator, error) {
	if err := d.store.locate(ctx, nil); err != nil {
		return nil, d.store.claimError(err)
	}
	return &d.store.db.Tables.Statements().Operator, nil
}

// Read implements operator.Database.
func (d operatorDB) Read(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	return d.store.refused(d.store.outboxRead(ctx, what, func(ctx context.Context, q engine.Queryer) error { return f(ctx, q) }))
}

// Write implements operator.Database.
func (d operatorDB) Write(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	return d.store.refused(d.store.outboxTx(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if limits := d.store.db.Tables.Statements().Operator.Limits; limits != "" {
			if _, err := tx.ExecContext(ctx, limits); err != nil {
				return err
			}
		}
		return f(ctx, tx)
	}))
}

// Single implements positions.Database.
func (d operatorDB) Single(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	return d.store.refused(d.store.outboxError(what, d.store.single(ctx, f)))
}

func (s *Store) single(ctx context.Context, f func(ctx context.Context, q operator.Queryer) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
	defer cancel()
	leave, err := s.db.Transactions.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	conn, err := s.cfg.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = s.db.Transactions.RetryBusy(ctx, func() error { return f(ctx, conn) })
	if s.fault(err).ReadOnly { // after a failover another connection may lead to the new primary
		engine.Discard(conn)
	}
	return err
}

// TakeReplay implements driver.ReplayQueue.
func (s *Store) TakeReplay(ctx context.Context, name string,
	lease time.Duration,
) (*dedupdriver.RequestedReplay, consumer.DeadLetter, time.Duration, error) {
	return s.operator().TakeReplay(ctx, name, lease)
}

// ReturnReplay implements driver.ReplayQueue.
func (s *Store) ReturnReplay(ctx context.Context, action [16]byte, letter consumer.DeadLetterID, failed observe.Cause,
	text string, wait time.Duration,
) error {
	return s.operator().ReturnReplay(ctx, action, letter, failed, text, wait)
}

// SettleReplay implements driver.ReplayQueue.
func (s *Store) SettleReplay(ctx context.Context, tx *sql.Tx, action [16]byte, letter consumer.DeadLetter,
	outcome observe.Outcome,
) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	query, args := operator.Settlement(&s.db.Tables.Statements().Operator, action, letter.ID, outcome)
	done, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return s.statementError(err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%w: %v is not marked by action %v", consumer.ErrNotParked, letter.ID,
			action), err)
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
	return s.InTx(ctx, recs, func(tx *sql.Tx, claims []dedup.Claim) error {
		query, args := operator.Discarded(&s.db.Tables.Statements().Operator, action, &letter, claims)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return s.statementError(err)
		}
		return s.TakeDeadLetter(ctx, tx, letter)
	})
}
