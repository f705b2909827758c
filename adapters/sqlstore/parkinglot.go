package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/operator"
)

var _ driver.ParkingLot[*sql.Tx] = (*Store)(nil)

// Park implements driver.ParkingLot.
func (s *Store) Park(ctx context.Context, tx *sql.Tx, letter consumer.DeadLetter) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	l, err := columns.NewLetter(letter)
	if err != nil {
		return fmt.Errorf("sqlstore: %w", err)
	}
	if err := s.db.Tables.Fits(len(l.Payload) + len(l.Headers) + len(l.OrderingKey)); err != nil {
		return fmt.Errorf("%w (park a message of topic %q)", err, l.Topic)
	}
	var key any
	if l.HasKey {
		key = s.db.Values.Key(l.Key)
	}
	_, err = tx.ExecContext(ctx, s.db.Tables.Statements().Park, s.db.Values.Key(l.ID), key, l.Consumer, l.Tenant,
		l.MessageID, l.Fingerprint, l.Window,
		s.db.Values.Time(l.Time), l.Cause, l.Error, l.Topic, l.OrderingKey, l.Position, l.Payload, l.Headers,
		l.Attempts)
	return s.statementError(err)
}

// TakeDeadLetter implements driver.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx *sql.Tx, letter consumer.DeadLetter) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, s.db.Tables.Statements().TakeDeadLetter, s.db.Values.Key(letter.ID),
		string(letter.Cause))
	if err != nil {
		return s.statementError(err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, letter.ID)
	}
	return s.statementError(err)
}

// DeadLetters implements driver.ParkingLot.
func (s *Store) DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	if err := s.locate(ctx, nil); err != nil {
		return nil, err
	}
	return operator.ListLetters(ctx, operatorDB{s}, s.db.Tables.Statements().DeadLetters, filter, func(query string, args []any) (letters []consumer.DeadLetter, err error) {
		err = s.db.Transactions.RetryBusy(ctx, func() error {
			letters = nil
			return engine.Query(ctx, s.cfg.DB, query, args...).Each(func(rows engine.Row) error {
				letter, err := scanLetter(rows)
				letters = append(letters, letter)
				return err
			})
		})
		if err != nil {
			return nil, s.claimError(err)
		}
		return letters, nil
	})
}

func scanLetter(rows engine.Row) (consumer.DeadLetter, error) {
	var l columns.Letter
	if err := rows.Scan((*engine.KeyHash)(&l.ID), &l.Consumer, &l.Tenant, &l.MessageID, &l.Fingerprint, &l.Window,
		engine.ToTime{To: &l.Time}, &l.Cause, &l.Error,
		&l.Topic, &l.OrderingKey, &l.Position, &l.Payload, &l.Headers, &l.Attempts, &l.Times,
		engine.ToTime{To: &l.First}, engine.ToTime{To: &l.Latest}, &l.Settled); err != nil {
		return consumer.DeadLetter{}, err
	}
	return l.DeadLetter()
}
