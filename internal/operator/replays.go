package operator

import (
	"context"
	"database/sql"
	"encoding/base64"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
	"github.com/txonce/txonce/observe"
)

// openReplay is a row of operator_actions.
type openReplay struct {
	id          ops.ActionID
	key         string
	asNew       bool
	rate        float64
	maxFailures int
	repair      bool
}

// TakeReplay implements driver.ReplayQueue.
func (s *Service) TakeReplay(ctx context.Context, name string,
	lease time.Duration,
) (r *driver.RequestedReplay, letter consumer.DeadLetter, wait time.Duration, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, letter, 0, err
	}
	open, err := readRows(ctx, s.DB, "requested replays", st.OpenReplays, []any{name}, func(rows *sql.Rows) (a openReplay, err error) {
		var digits string
		var asNew, repair int
		if err := rows.Scan(&digits, &a.key, &asNew, &a.rate, &a.maxFailures, &repair); err != nil {
			return a, err
		}
		a.asNew, a.repair = asNew != 0, repair != 0
		a.id, err = parseID(digits)
		return a, err
	})
	if err != nil {
		return nil, letter, 0, err
	}
	for _, a := range open {
		turn, err := s.takeLetter(ctx, st, a, lease)
		if err != nil {
			return nil, letter, 0, err
		}
		if !turn.found {
			if turn.wait > 0 && (wait == 0 || turn.wait < wait) {
				wait = turn.wait
			}
			continue
		}
		r = &driver.RequestedReplay{
			Action: a.id, Key: a.key, AsNew: a.asNew, Payload: turn.payload, Tries: turn.tries,
			Lost: turn.lost,
		}
		letters, err := s.Letters.DeadLetters(ctx, consumer.DeadLetterFilter{ID: turn.letter, Consumer: name, Limit: 1})
		if err != nil {
			return nil, letter, 0, err
		}
		if len(letters) == 0 { // it was processed or discarded in another way
			err := s.gone(ctx, st, a.id, turn.letter)
			return nil, letter, 1, err // at once again
		}
		return r, letters[0], 0, nil
	}
	return nil, letter, wait, nil
}

// turn is the answer to a worker that wants a letter of one action.
type turn struct {
	letter  consumer.DeadLetterID
	payload []byte // of a repair; nil: the letter's own
	tries   int
	lost    int
	found   bool
	wait    time.Duration // if not found; 0: the action has ended
}

// takeLetter takes the next letter of an action. The row of the action is locked, so that workers take turns at its
// rate.
func (s *Service) takeLetter(ctx context.Context, st *dialect.Operator, a openReplay,
	lease time.Duration,
) (t turn, err error) {
	err = s.DB.Write(ctx, "take a requested replay", func(ctx context.Context, q Queryer) error {
		t = turn{}
		open, wait := false, int64(0)
		if err := sqlrows.Each(ctx, q, st.LockAction, []any{id(a.id)},
			func(rows *sql.Rows) error { open = true; return rows.Scan(&wait) }); err != nil || !open {
			return err
		}
		var turn int64 // a turn lasts that long; one that is further away was given before the clock was set back
		if a.rate > 0 {
			turn = int64(float64(time.Second/time.Microsecond) / a.rate)
		}
		if 0 < wait && wait <= turn {
			t.wait = time.Duration(wait) * time.Microsecond
			left := 0
			err := sqlrows.Each(ctx, q, st.Waiting, []any{id(a.id), 1},
				func(rows *sql.Rows) error { return rows.Scan(&left) })
			if err == nil && left == 0 { // the turn of the next letter never comes
				return end(ctx, q, st, a.id, "done")
			}
			return err
		}
		failures := 0
		if a.maxFailures > 0 {
			if err := sqlrows.Each(ctx, q, st.Failures, []any{id(a.id)},
				func(rows *sql.Rows) error { return rows.Scan(&failures) }); err != nil {
				return err
			}
			if failures >= a.maxFailures {
				return end(ctx, q, st, a.id, "too many failures")
			}
		}
		var digits string
		if err := sqlrows.Each(ctx, q, st.NextLetter, []any{id(a.id)},
			func(rows *sql.Rows) error { t.found = true; return rows.Scan(&digits, &t.tries, &t.lost) }); err != nil {
			return err
		}
		if !t.found {
			return t.none(ctx, q, st, a.id)
		}
		letter, err := parseID(digits)
		if err != nil {
			return err
		}
		if a.repair { // read once it is this worker's: many open repairs may have large payloads
			var encoded []byte
			err := sqlrows.Each(ctx, q, st.RepairPayload, []any{id(a.id)},
				func(rows *sql.Rows) error { return rows.Scan(&encoded) })
			if err == nil {
				t.payload, err = base64.StdEncoding.DecodeString(string(encoded))
			}
			if err != nil {
				return err
			}
		}
		t.letter, t.tries = letter, t.tries+1
		if _, err := q.ExecContext(ctx, st.TakeLetter, lease.Microseconds(), id(a.id), id(letter)); err != nil ||
			a.rate <= 0 {
			return err
		}
		_, err = q.ExecContext(ctx, st.NextTurn, turn, id(a.id))
		return err
	})
	return t, err
}

// none ends an action without letters, or finds out when the next one may be taken.
func (t *turn) none(ctx context.Context, q Queryer, st *dialect.Operator, action ops.ActionID) error {
	left, free := 0, int64(0)
	if err := sqlrows.Each(ctx, q, st.FreeAt, []any{id(action)},
		func(rows *sql.Rows) error { return rows.Scan(&left, &free) }); err != nil {
		return err
	}
	if left == 0 {
		return end(ctx, q, st, action, "done")
	}
	if t.wait = time.Duration(free) * time.Microsecond; free <= 0 { // a worker is settling it
		t.wait = time.Second
	}
	return nil
}

// gone records that a letter does not exist any more.
func (s *Service) gone(ctx context.Context, st *dialect.Operator, action ops.ActionID,
	letter consumer.DeadLetterID,
) error {
	return s.DB.Write(ctx, "requested replay", func(ctx context.Context, q Queryer) error {
		_, err := q.ExecContext(ctx, st.Settle, string(observe.Duplicate), id(action), id(letter))
		return err
	})
}

// ReturnReplay implements driver.ReplayQueue.
func (s *Service) ReturnReplay(ctx context.Context, action [16]byte, letter consumer.DeadLetterID, failed observe.Cause,
	text string, wait time.Duration,
) error {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return err
	}
	return s.DB.Write(ctx, "return a requested replay", func(ctx context.Context, q Queryer) (err error) {
		if failed == "" {
			_, err = q.ExecContext(ctx, st.Release, wait.Microseconds(), id(action), id(letter))
		} else {
			_, err = q.ExecContext(ctx, st.Fail, string(observe.Parked), string(failed), columns.Text(text), id(action),
				id(letter))
		}
		return err
	})
}

// Settlement returns the statement and the parameters that settle a letter in a transaction. It must change one row, or
// the letter does not wait for the action any more.
func Settlement(st *dialect.Operator, action ops.ActionID, letter consumer.DeadLetterID,
	outcome observe.Outcome,
) (query string, args []any) {
	return st.Settle, []any{string(outcome), id(action), id(letter)}
}

// Discarded returns the statement, and its parameters, that records that a letter was discarded. claims are the answers
// for DiscardRecords.
func Discarded(st *dialect.Operator, action ops.ActionID, letter *consumer.DeadLetter,
	claims []dedup.Claim,
) (query string, args []any) {
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
func (s *Service) Discards(ctx context.Context, key dedup.Key) ([]ops.Discarded, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	return readRows(ctx, s.DB, "discards of a key", st.Discards, []any{id(key.Hash()), discardsMost}, func(rows *sql.Rows) (d ops.Discarded, err error) {
		var action, letter string
		var at int64
		var claimed int
		err = rows.Scan(&action, &letter, &d.Who, &d.Reason, &at, &claimed)
		if err == nil {
			d.Action, err = parseID(action)
		}
		if err == nil {
			d.Letter, err = parseID(letter)
		}
		d.At, d.Claimed = instant(at), claimed != 0
		return d, err
	})
}

// DiscardRecords returns what DiscardLetter claims: that of consumer.DeadLetter.DiscardRecords, with the window that
// the consumer has used last. The letter's own may be one that the consumer has given up: another use of it would move
// the horizon closer.
func (s *Service) DiscardRecords(ctx context.Context, letter consumer.DeadLetter) ([]dedup.Record, error) {
	if letter.Record.Key.ID == "" {
		return nil, nil
	}
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	window, latest := letter.Record.Window, int64(0)
	err = s.DB.Read(ctx, "windows", func(ctx context.Context, q Queryer) error {
		return sqlrows.Each(ctx, q, st.Windows, nil, func(rows *sql.Rows) error {
			var name []byte
			var seconds, first, last int64
			err := rows.Scan(&name, &seconds, &first, &last)
			if string(name) == letter.Record.Key.Consumer && last >= latest {
				// the longest of those used last comes last
				window, latest = time.Duration(seconds)*time.Second, last
			}
			return err
		})
	})
	return letter.DiscardRecords(window), err
}
