package operator

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/observe"
)

// Discarded returns the statement and the parameters with which a store records that a letter was discarded. claims are the answers for
// DiscardRecords.
func Discarded(st *dialect.Operator, action ops.ActionID, letter *consumer.DeadLetter, claims []dedup.Claim) (query string, args []any) {
	var key any // a letter without a usable key has none
	if letter.Record.Key.ID != "" {
		key = id(letter.Record.Key.Hash())
	}
	first := len(claims) > 0 && claims[0].Verdict == dedup.First
	return st.AddResult, []any{id(action), id(letter.ID), string(observe.Rejected), key, flag(first)}
}

// discardsMost is how many discards of one key are listed.
const discardsMost = 100

// Discards implements ops.Keys.
func (s *Service) Discards(ctx context.Context, key dedup.Key) (found []ops.Discarded, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	err = s.DB.Read(ctx, "discards of a key", func(ctx context.Context, q Queryer) error {
		found = nil
		return each(ctx, q, st.Discards, []any{id(key.Hash()), discardsMost}, func(rows *sql.Rows) error {
			var d ops.Discarded
			var action, letter string
			var at int64
			var claimed int
			err := rows.Scan(&action, &letter, &d.Who, &d.Reason, &at, &claimed)
			if err == nil {
				d.Action, err = parseID(action)
			}
			if err == nil {
				d.Letter, err = parseID(letter)
			}
			d.At, d.Claimed = instant(at), claimed != 0
			found = append(found, d)
			return err
		})
	})
	return found, err
}

// DiscardRecords returns what DiscardLetter claims, so that a late redelivery of the letter's message is a duplicate. It uses the window that
// the consumer has used last. The letter's own may be one that the consumer has given up: another use of it would move the horizon closer.
func (s *Service) DiscardRecords(ctx context.Context, letter consumer.DeadLetter) ([]dedup.Record, error) {
	if letter.Record.Key.ID == "" {
		return nil, nil
	}
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	rec, latest := letter.Record, int64(0)
	rec.Time = time.Time{} // without a time it is never Unprovable
	err = s.DB.Read(ctx, "windows", func(ctx context.Context, q Queryer) error {
		return each(ctx, q, st.Windows, nil, func(rows *sql.Rows) error {
			var name []byte
			var seconds, first, last int64
			err := rows.Scan(&name, &seconds, &first, &last)
			if string(name) == rec.Key.Consumer && last >= latest { // the longest of those used last comes last
				rec.Window, latest = time.Duration(seconds)*time.Second, last
			}
			return err
		})
	})
	return []dedup.Record{rec}, err
}
