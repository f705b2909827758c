package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/columns"
)

var _ consumer.ParkingLot[pgx.Tx] = (*Store)(nil)

// Park implements consumer.ParkingLot.
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
		l.Reason, l.Cause, l.Topic, l.OrderingKey, l.Position, l.Payload, l.Headers, l.Attempts)
	return s.stepError("park", err)
}

// TakeDeadLetter implements consumer.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx pgx.Tx, id consumer.DeadLetterID) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, s.sql.TakeDeadLetter, pgUUID(id))
	if err != nil {
		return s.stepError("take letter", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, id)
	}
	return nil
}

// DeadLetters implements consumer.ParkingLot.
func (s *Store) DeadLetters(ctx context.Context, f consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	var after *time.Time
	if !f.After.First.IsZero() {
		after = &f.After.First
	}
	rows, _ := s.cfg.Pool.Query(ctx, s.sql.DeadLetters, uuid(f.ID), columns.Text(f.Consumer), columns.Text(string(f.Reason)), after, uuid(f.After.ID), f.Limit,
		columns.Text(f.Topic), columns.Text(f.MessageID), columns.Text(f.Tenant), columns.Text(f.Cause), nullTime(f.Since), nullTime(f.Until), columns.Text(f.Position))
	letters, err := pgx.CollectRows(rows, letter)
	return letters, s.claimError(err)
}

func letter(row pgx.CollectableRow) (consumer.DeadLetter, error) {
	var l columns.Letter
	var at *time.Time
	if err := row.Scan(&l.ID, &l.Consumer, &l.Tenant, &l.MessageID, &l.Fingerprint, &l.Window, &at, &l.Reason, &l.Cause,
		&l.Topic, &l.OrderingKey, &l.Position, &l.Payload, &l.Headers, &l.Attempts, &l.Times, &l.First, &l.Latest, &l.Settled); err != nil {
		return consumer.DeadLetter{}, err
	}
	if at != nil {
		l.Time = *at
	}
	return l.DeadLetter()
}

// uuid returns NULL for the zero ID.
func uuid(id consumer.DeadLetterID) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != consumer.DeadLetterID{}}
}
