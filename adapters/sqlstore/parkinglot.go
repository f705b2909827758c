package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/columns"
)

var _ consumer.ParkingLot[*sql.Tx] = (*Store)(nil)

// Park implements consumer.ParkingLot.
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
	_, err = tx.ExecContext(ctx, s.db.Tables.Statements().Park, s.db.Values.Key(l.ID), key, l.Consumer, l.Tenant, l.MessageID, l.Fingerprint, l.Window,
		s.db.Values.Time(l.Time), l.Reason, l.Cause, l.Topic, l.OrderingKey, l.Position, l.Payload, l.Headers, l.Attempts)
	return s.statementError(err)
}

// TakeDeadLetter implements consumer.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx *sql.Tx, id consumer.DeadLetterID) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, s.db.Tables.Statements().TakeDeadLetter, s.db.Values.Key(id))
	if err != nil {
		return s.statementError(err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, id)
	}
	return s.statementError(err)
}

// DeadLetters implements consumer.ParkingLot.
func (s *Store) DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) (letters []consumer.DeadLetter, err error) {
	if err := s.locate(ctx, nil); err != nil {
		return nil, err
	}
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	err = s.db.Transactions.RetryBusy(ctx, func() error {
		letters = nil
		args := []any{
			s.letterID(filter.ID), columns.Text(filter.Consumer), columns.Text(string(filter.Reason)), s.db.Values.Time(filter.After.First), s.letterID(filter.After.ID), filter.Limit,
			columns.Text(filter.Topic), columns.Text(filter.MessageID), columns.Text(filter.Tenant), columns.Text(filter.Cause), s.db.Values.Time(filter.Since), s.db.Values.Time(filter.Until), columns.Text(filter.Position),
		}
		if s.cfg.Dialect == MySQL { // its parameters are in the order of the text
			args = append(slices.Delete(args, 5, 6), filter.Limit)
		}
		return engine.Query(ctx, s.cfg.DB, s.db.Tables.Statements().DeadLetters, args...).Each(func(rows *sql.Rows) error {
			letter, err := scanLetter(rows)
			letters = append(letters, letter)
			return err
		})
	})
	if err != nil {
		return nil, s.claimError(err)
	}
	return letters, nil
}

// letterID returns NULL for the zero ID.
func (s *Store) letterID(id consumer.DeadLetterID) any {
	if id == (consumer.DeadLetterID{}) {
		return nil
	}
	return s.db.Values.Key(id)
}

func scanLetter(rows *sql.Rows) (consumer.DeadLetter, error) {
	var l columns.Letter
	if err := rows.Scan((*engine.KeyHash)(&l.ID), &l.Consumer, &l.Tenant, &l.MessageID, &l.Fingerprint, &l.Window, engine.ToTime{To: &l.Time}, &l.Reason, &l.Cause,
		&l.Topic, &l.OrderingKey, &l.Position, &l.Payload, &l.Headers, &l.Attempts, &l.Times, engine.ToTime{To: &l.First}, engine.ToTime{To: &l.Latest}, &l.Settled); err != nil {
		return consumer.DeadLetter{}, err
	}
	return l.DeadLetter()
}
