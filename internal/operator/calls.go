package operator

import (
	"context"
	"database/sql"
	"math/rand/v2"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
)

// Call implements driver.CallKeeper.
func (s *Service) Call(ctx context.Context, key dedup.Key) (c driver.Call, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return c, err
	}
	k := id(key.Hash())
	err = s.DB.Read(ctx, "read a call", func(ctx context.Context, q Queryer) error {
		var now, settled, claimed, fingerprint, first, last, until int64
		c = driver.Call{}
		err := sqlrows.Each(ctx, q, st.Calls.Read, []any{k, k}, func(row *sql.Rows) error {
			return row.Scan(&now, &c.Server, &settled, &claimed, &c.Token, &fingerprint, &first, &last, &until, &c.Unanswered,
				&c.Verdict, &c.Result)
		})
		c.Now, c.First, c.Last, c.Until = instant(now), instant(first), instant(last), instant(until)
		c.Settled = settled != 0
		c.Claimed, c.Fingerprint = driver.FingerprintFromInt64(claimed), driver.FingerprintFromInt64(fingerprint)
		return err
	})
	return c, err
}

// BeginTry implements driver.CallKeeper. The claim is read after the record was written: a transaction that settles the
// call deletes the record, so if it was not committed when the record was written, either the record was still that of
// its own try, or it waits for this transaction.
func (s *Service) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call,
	try driver.Try,
) (began bool, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return false, err
	}
	k := id(key.Hash())
	err = s.DB.Write(ctx, "record a try", func(ctx context.Context, q Queryer) error {
		began = false
		var err error
		if seen.Token == 0 {
			_, err = q.ExecContext(ctx, st.Calls.Insert, k, try.Fingerprint.Int64(), try.Within.Microseconds(), 1, try.Token)
		} else {
			_, err = q.ExecContext(ctx, st.Calls.Try, flag(try.Only), flag(try.Only), try.Within.Microseconds(), try.Token,
				k, seen.Token)
		}
		if err != nil {
			return err
		}
		began, err = holdsToken(ctx, q, st.Calls.Token, k, try.Token)
		if err != nil || !began {
			return err
		}
		settled, err := dropIfSettled(ctx, q, st, k)
		began = !settled
		return err
	})
	return began && err == nil, err
}

// holdsToken reports whether the record has that token. The number of affected rows does not tell it: MySQL counts a
// row that it found and did not change, where the DSN says so.
func holdsToken(ctx context.Context, q Queryer, query string, key any, token int64) (bool, error) {
	found, err := number(ctx, q, query, key)
	return found == token, err
}

// number returns the number that a query selects; 0 if it selects no row.
func number(ctx context.Context, q Queryer, query string, args ...any) (n int64, err error) {
	err = sqlrows.Each(ctx, q, query, args, func(row *sql.Rows) error { return row.Scan(&n) })
	return n, err
}

// TakeBackTry implements driver.CallKeeper.
func (s *Service) TakeBackTry(ctx context.Context, key dedup.Key, token int64, before driver.Call) error {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return err
	}
	query, args := st.Calls.Remove, []any{id(key.Hash()), token}
	if before.Token != 0 {
		query = st.Calls.Restore
		args = []any{
			micros(before.First), micros(before.Last), micros(before.Until), before.Unanswered, int(before.Verdict),
			before.Result, id(key.Hash()), token,
		}
	}
	return s.DB.Write(ctx, "take back a try", func(ctx context.Context, q Queryer) error {
		_, err := q.ExecContext(ctx, query, args...)
		return err
	})
}

// AnswerCall implements driver.CallKeeper.
func (s *Service) AnswerCall(ctx context.Context, key dedup.Key, seen int64, a driver.Answer) (recorded bool, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return false, err
	}
	k, verdict, result := id(key.Hash()), driver.CallAbsent, []byte(nil)
	if a.Happened {
		verdict, result = driver.CallHappened, append([]byte{}, a.Result...)
	}
	err = s.DB.Write(ctx, "answer a call", func(ctx context.Context, q Queryer) error {
		recorded = false
		inserted, answered, was := newToken(), newToken(), seen
		_, err := q.ExecContext(ctx, st.Calls.Insert, k, a.Fingerprint.Int64(), 0, 0, inserted)
		if err != nil {
			return err
		}
		switch none, err := holdsToken(ctx, q, st.Calls.Token, k, inserted); {
		case err != nil:
			return err
		case none && seen > 0:
			_, err := q.ExecContext(ctx, st.Calls.Drop, k)
			return err
		case none:
			was = inserted
		}
		if _, err := q.ExecContext(ctx, st.Calls.Answer, int(verdict), result, answered, k, was); err != nil {
			return err
		}
		if recorded, err = holdsToken(ctx, q, st.Calls.Token, k, answered); err != nil || !recorded {
			return err
		}
		settled, err := dropIfSettled(ctx, q, st, k)
		recorded = !settled
		return err
	})
	return recorded && err == nil, err
}

// dropIfSettled deletes the record of a call that is settled. The transaction has written the record: see BeginTry.
func dropIfSettled(ctx context.Context, q Queryer, st *dialect.Operator, k any) (settled bool, err error) {
	claims, err := number(ctx, q, st.Calls.Claimed, k)
	if err != nil || claims == 0 {
		return false, err
	}
	_, err = q.ExecContext(ctx, st.Calls.Drop, k)
	return true, err
}

// newToken returns a token that is not 0.
func newToken() int64 { return rand.Int64N(1<<62) + 1 }

// DroppedCall returns the statement of driver.CallKeeper's DropCall, for the store's transaction.
func DroppedCall(st *dialect.Operator, key dedup.Key, token int64) (query string, args []any) {
	if token == 0 {
		return st.Calls.Drop, []any{id(key.Hash())}
	}
	return st.Calls.Remove, []any{id(key.Hash()), token}
}
