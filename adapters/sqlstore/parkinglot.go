package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// maxCause is how much of an error's text is kept, in bytes.
const maxCause = 8 << 10

var _ consumer.ParkingLot[*sql.Tx] = (*Store)(nil)

// Park implements consumer.ParkingLot.
func (s *Store) Park(ctx context.Context, tx *sql.Tx, letter consumer.DeadLetter) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	rec, msg := letter.Record, letter.Message
	headers, err := consumer.EncodeHeaders(msg.Headers)
	if err != nil {
		return fmt.Errorf("sqlstore: park: headers: %w", err)
	}
	var key any
	if rec.Key.ID != "" {
		key = s.db.key(rec.Key.Hash())
	}
	payload := msg.Payload
	if payload == nil {
		payload = []byte{}
	}
	if err := s.db.fits(len(payload) + len(headers) + len(msg.Key)); err != nil {
		return fmt.Errorf("%w (park a message of topic %q)", err, msg.Topic)
	}
	_, err = tx.ExecContext(ctx, s.db.statements().Park, s.db.key(letter.ID), key, text(rec.Key.Consumer), nullable(text(rec.Key.Tenant)),
		nullable(text(rec.Key.ID)), fingerprint(rec.Fingerprint), int64(rec.Keep()/time.Second), s.db.time(claims.Ceil(rec.Time)),
		text(string(letter.Reason)), text(letter.Cause), text(msg.Topic), []byte(msg.Key), text(msg.Position), payload, string(headers), msg.Attempt)
	return s.statementError(err)
}

// text is what a text column takes: valid UTF-8 without NUL.
func text(s string) string {
	if len(s) > maxCause {
		s = s[:maxCause]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// TakeDeadLetter implements consumer.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx *sql.Tx, id consumer.DeadLetterID) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, s.db.statements().TakeDeadLetter, s.db.key(id))
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
	err = s.db.patiently(ctx, func() error {
		letters = nil
		rows, err := s.cfg.DB.QueryContext(ctx, s.db.statements().DeadLetters, s.letterID(filter.ID), filter.Consumer, string(filter.Reason),
			s.db.time(filter.After.First), s.letterID(filter.After.ID), filter.Limit)
		return each(rows, err, func(rows *sql.Rows) error {
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

// letterID is NULL for the zero ID.
func (s *Store) letterID(id consumer.DeadLetterID) any {
	if id == (consumer.DeadLetterID{}) {
		return nil
	}
	return s.db.key(id)
}

func scanLetter(rows *sql.Rows) (l consumer.DeadLetter, err error) {
	var (
		id                     derived
		tenant, messageID      sql.NullString
		print                  sql.NullInt64
		seconds                int64
		created, first, latest instant
		orderingKey            []byte
		headers, reason        string
		m                      = &l.Message
	)
	if err := rows.Scan(&id, &l.Record.Key.Consumer, &tenant, &messageID, &print, &seconds, &created, &reason, &l.Cause,
		&m.Topic, &orderingKey, &m.Position, &m.Payload, &headers, &m.Attempt, &l.Times, &first, &latest, &l.Settled); err != nil {
		return l, err
	}
	l.ID, l.Reason, l.First, l.Latest = consumer.DeadLetterID(id), consumer.Reason(reason), first.Time, latest.Time
	l.Record.Key.Tenant, l.Record.Key.ID = tenant.String, messageID.String
	l.Record.Window, l.Record.Time = time.Duration(seconds)*time.Second, created.Time
	if print.Valid {
		l.Record.Fingerprint = dedup.FingerprintFromInt64(print.Int64)
	}
	m.Tenant, m.ID, m.Time, m.Key = tenant.String, messageID.String, created.Time, string(orderingKey)
	m.Headers, err = consumer.DecodeHeaders([]byte(headers))
	return l, err
}
