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
	"github.com/txonce/txonce/observe"
)

// parkingLot keeps dead letters.
type parkingLot struct{ *sessions }

// Park implements driver.ParkingLot.
func (p *parkingLot) Park(ctx context.Context, tx pgx.Tx, letter consumer.DeadLetter) error {
	if err := p.resolve(ctx, tx); err != nil {
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
	_, err = tx.Exec(ctx, p.sql.Park, pgUUID(l.ID), pgtype.UUID{Bytes: l.Key, Valid: l.HasKey}, l.Consumer, l.Tenant,
		l.MessageID, l.Fingerprint, l.Window, at,
		l.Cause, l.Error, l.Topic, l.OrderingKey, l.Position, l.Payload, l.Headers, l.Attempts)
	return stepError("park", err)
}

// TakeDeadLetter implements driver.ParkingLot.
func (p *parkingLot) TakeDeadLetter(ctx context.Context, tx pgx.Tx, letter consumer.DeadLetter) error {
	if err := p.resolve(ctx, tx); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, p.sql.TakeDeadLetter, pgUUID(letter.ID), string(letter.Cause))
	if err != nil {
		return stepError("take letter", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, letter.ID)
	}
	return nil
}

// DeadLetters implements driver.ParkingLot.
func (p *parkingLot) DeadLetters(ctx context.Context, f consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	if err := p.resolve(ctx, p.cfg.Pool); err != nil {
		return nil, err
	}
	return operator.ListLetters(ctx, operatorDB{p.sessions}, p.sql.DeadLetters, f, func(query string, args []any) ([]consumer.DeadLetter, error) {
		rows, _ := p.cfg.Pool.Query(ctx, query, args...)
		letters, err := pgx.CollectRows(rows, letter)
		return letters, claimError(err)
	})
}

// SettleReplay implements driver.ReplayQueue.
func (p *parkingLot) SettleReplay(ctx context.Context, tx pgx.Tx, action [16]byte, letter consumer.DeadLetter,
	outcome observe.Outcome,
) error {
	if err := p.resolve(ctx, tx); err != nil {
		return err
	}
	query, args := operator.Settlement(&p.operations, action, letter.ID, outcome)
	tag, err := tx.Exec(ctx, query, args...)
	if err != nil {
		return stepError("settle replay", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %v is not marked by action %v", consumer.ErrNotParked, letter.ID, action)
	}
	return p.TakeDeadLetter(ctx, tx, letter)
}

func letter(row pgx.CollectableRow) (consumer.DeadLetter, error) {
	var l columns.Letter
	var at *time.Time
	if err := row.Scan(&l.ID, &l.Consumer, &l.Tenant, &l.MessageID, &l.Fingerprint, &l.Window, &at, &l.Cause, &l.Error,
		&l.Topic, &l.OrderingKey, &l.Position, &l.Payload, &l.Headers, &l.Attempts, &l.Times, &l.First, &l.Latest,
		&l.Settled); err != nil {
		return consumer.DeadLetter{}, err
	}
	if at != nil {
		l.Time = *at
	}
	return l.DeadLetter()
}
