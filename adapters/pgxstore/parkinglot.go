package pgxstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// maxCause is how much of an error's text is kept, in bytes.
const maxCause = 8 << 10

var _ consumer.ParkingLot[pgx.Tx] = (*Store)(nil)

// Park implements consumer.ParkingLot.
func (s *Store) Park(ctx context.Context, tx pgx.Tx, letter consumer.DeadLetter) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	rec, msg := letter.Record, letter.Message
	headers, err := consumer.EncodeHeaders(msg.Headers)
	if err != nil {
		return fmt.Errorf("pgxstore: park: headers: %w", err)
	}
	var key pgtype.UUID // NULL
	if rec.Key.ID != "" {
		key = pgUUID(rec.Key.Hash())
	}
	var created *time.Time
	if !rec.Time.IsZero() {
		t := claims.Ceil(rec.Time) // a replay must not expire earlier than the message would have
		created = &t
	}
	payload := msg.Payload
	if payload == nil {
		payload = []byte{}
	}
	_, err = tx.Exec(ctx, s.sql.Park, pgUUID(letter.ID), key, rec.Key.Consumer, nonEmpty(rec.Key.Tenant), nonEmpty(rec.Key.ID),
		fingerprint(rec.Fingerprint), int64(rec.Keep()/time.Second), created, string(letter.Reason), text(letter.Cause),
		text(msg.Topic), []byte(msg.Key), text(msg.Position), payload, string(headers), msg.Attempt)
	return s.stepError("park", err)
}

// text is what a text column takes: valid UTF-8 without NUL.
func text(s string) string {
	if len(s) > maxCause {
		s = s[:maxCause]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
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
	rows, _ := s.cfg.Pool.Query(ctx, s.sql.DeadLetters, uuid(f.ID), f.Consumer, string(f.Reason), after, uuid(f.After.ID), f.Limit)
	letters, err := pgx.CollectRows(rows, letter)
	return letters, s.claimError(err)
}

func letter(row pgx.CollectableRow) (l consumer.DeadLetter, err error) {
	var (
		id                [16]byte
		tenant, messageID *string
		fingerprint       *int64
		seconds           int64
		created           *time.Time
		orderingKey       []byte
		headers           string
		m                 = &l.Message
	)
	if err := row.Scan(&id, &l.Record.Key.Consumer, &tenant, &messageID, &fingerprint, &seconds, &created, &l.Reason, &l.Cause,
		&m.Topic, &orderingKey, &m.Position, &m.Payload, &headers, &m.Attempt, &l.Times, &l.First, &l.Latest, &l.Settled); err != nil {
		return l, err
	}
	l.ID, m.Key, l.Record.Window = id, string(orderingKey), time.Duration(seconds)*time.Second
	if tenant != nil {
		l.Record.Key.Tenant, m.Tenant = *tenant, *tenant
	}
	if messageID != nil {
		l.Record.Key.ID, m.ID = *messageID, *messageID
	}
	if fingerprint != nil {
		l.Record.Fingerprint = dedup.FingerprintFromInt64(*fingerprint)
	}
	if created != nil {
		l.Record.Time, m.Time = *created, *created
	}
	m.Headers, err = consumer.DecodeHeaders([]byte(headers))
	return l, err
}

// uuid is NULL for the zero ID.
func uuid(id consumer.DeadLetterID) pgtype.UUID {
	return pgtype.UUID{Bytes: id, Valid: id != consumer.DeadLetterID{}}
}
