package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/operator"
)

// Park implements driver.ParkingLot.
func (s *Store) Park(ctx context.Context, tx pgx.Tx, letter consumer.DeadLetter) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	l, err := columns.NewLetter(letter)
	if err != nil {
		return fmt.Errorf("pgxstore: %w", err)
	}
	var at *time.Time
	if !l.Time.IsZero() {
		at = &l.Time
	}
	_, err = tx.Exec(ctx, s.sql.Park, pgUUID(l.ID), pgtype.UUID{Bytes: l.Key, Valid: l.HasKey}, l.Consumer, l.Tenant, l.MessageID, l.Fingerprint, l.Window, at,
		l.Cause, l.Error, l.Topic, l.OrderingKey, l.Position, l.Payload, l.Headers, l.Attempts)
	return stepError("park", err)
}

// TakeDeadLetter implements driver.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx pgx.Tx, letter consumer.DeadLetter) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, s.sql.TakeDeadLetter, pgUUID(letter.ID), string(letter.Cause))
	if err != nil {
		return stepError("take letter", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, letter.ID)
	}
	return nil
}

// DeadLetters implements driver.ParkingLot.
func (s *Store) DeadLetters(ctx context.Context, f consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	return operator.ListLetters(ctx, operatorDB{s}, s.sql.DeadLetters, f, func(query string, args []any) ([]consumer.DeadLetter, error) {
		rows, _ := s.cfg.Pool.Query(ctx, query, args...)
		letters, err := pgx.CollectRows(rows, letter)
		return letters, claimError(err)
	})
}

func letter(row pgx.CollectableRow) (consumer.DeadLetter, error) {
	var l columns.Letter
	var at *time.Time
	if err := row.Scan(&l.ID, &l.Consumer, &l.Tenant, &l.MessageID, &l.Fingerprint, &l.Window, &at, &l.Cause, &l.Error,
		&l.Topic, &l.OrderingKey, &l.Position, &l.Payload, &l.Headers, &l.Attempts, &l.Times, &l.First, &l.Latest, &l.Settled); err != nil {
		return consumer.DeadLetter{}, err
	}
	if at != nil {
		l.Time = *at
	}
	return l.DeadLetter()
}
