package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

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
		key = s.db.Values.Key(rec.Key.Derive())
	}
	payload := msg.Payload
	if payload == nil {
		payload = []byte{}
	}
	if err := s.db.Tables.Fits(len(payload) + len(headers) + len(msg.Key)); err != nil {
		return fmt.Errorf("%w (park a message of topic %q)", err, msg.Topic)
	}
	_, err = tx.ExecContext(ctx, s.db.Tables.Statements().Park, s.db.Values.Key(letter.ID), key, engine.Text(rec.Key.Consumer), engine.Nullable(engine.Text(rec.Key.Tenant)),
		engine.Nullable(engine.Text(rec.Key.ID)), engine.Fingerprint(rec.Fingerprint), int64(rec.Keep()/time.Second), s.db.Values.Time(claims.Ceil(rec.Time)),
		engine.Text(string(letter.Reason)), engine.Text(letter.Cause), engine.Text(msg.Topic), []byte(msg.Key), engine.Text(msg.Position), payload, string(headers), msg.Attempt)
	return s.statementError(err)
}

// Take implements consumer.ParkingLot.
func (s *Store) Take(ctx context.Context, tx *sql.Tx, id consumer.LetterID) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, s.db.Tables.Statements().Take, s.db.Values.Key(id))
	if err != nil {
		return s.statementError(err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%w: %v", consumer.ErrNotParked, id)
	}
	return s.statementError(err)
}

// Letters implements consumer.ParkingLot.
func (s *Store) Letters(ctx context.Context, filter consumer.LetterFilter) (letters []consumer.DeadLetter, err error) {
	if err := s.locate(ctx, nil); err != nil {
		return nil, err
	}
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	err = s.db.Transactions.RetryBusy(ctx, func() error {
		letters = nil
		return engine.Query(ctx, s.cfg.DB, s.db.Tables.Statements().Letters, s.letterID(filter.ID), filter.Consumer, string(filter.Reason),
			s.db.Values.Time(filter.After.First), s.letterID(filter.After.ID), filter.Limit).Each(func(rows *sql.Rows) error {
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
func (s *Store) letterID(id consumer.LetterID) any {
	if id == (consumer.LetterID{}) {
		return nil
	}
	return s.db.Values.Key(id)
}

func scanLetter(rows *sql.Rows) (l consumer.DeadLetter, err error) {
	var (
		id                     engine.Derived
		tenant, messageID      sql.NullString
		print                  sql.NullInt64
		seconds                int64
		created, first, latest engine.Instant
		orderingKey            []byte
		headers, reason        string
		m                      = &l.Message
	)
	if err := rows.Scan(&id, &l.Record.Key.Consumer, &tenant, &messageID, &print, &seconds, &created, &reason, &l.Cause,
		&m.Topic, &orderingKey, &m.Position, &m.Payload, &headers, &m.Attempt, &l.Times, &first, &latest, &l.Settled); err != nil {
		return l, err
	}
	l.ID, l.Reason, l.First, l.Latest = consumer.LetterID(id), consumer.Reason(reason), first.Time, latest.Time
	l.Record.Key.Tenant, l.Record.Key.ID = tenant.String, messageID.String
	l.Record.Window, l.Record.Time = time.Duration(seconds)*time.Second, created.Time
	if print.Valid {
		l.Record.Fingerprint = dedup.FingerprintFromInt64(print.Int64)
	}
	m.Tenant, m.ID, m.Time, m.Key = tenant.String, messageID.String, created.Time, string(orderingKey)
	m.Headers, err = consumer.DecodeHeaders([]byte(headers))
	return l, err
}
