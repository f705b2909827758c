package operator

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/consumer/ops"
)

// Results implements ops.Requester.
func (s *Service) Results(ctx context.Context, f ops.ResultFilter) ([]ops.Result, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	query, args := st.Results, []any{id(f.Action), f.Limit}
	if f.Outcome != "" {
		query, args = st.ResultsOf, []any{id(f.Action), string(f.Outcome), f.Limit}
	}
	return readRows(ctx, s.DB, "results", query, args, func(rows *sql.Rows) (r ops.Result, err error) {
		var digits string
		var at int64
		if err := rows.Scan(&digits, &r.Outcome, &r.Cause, &r.Error, &at, &r.Tries); err != nil {
			return r, err
		}
		r.Action, r.At = f.Action, instant(at)
		r.Letter, err = parseID(digits)
		return r, err
	})
}
