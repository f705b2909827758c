package operator

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/observe"
)

// End implements ops.Requester.
func (s *Service) End(ctx context.Context, action ops.ActionID, note string) (ops.Action, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return ops.Action{}, err
	}
	if err := s.DB.Write(ctx, "end", func(ctx context.Context, q Queryer) error { return end(ctx, q, st, action, note) }); err != nil {
		return ops.Action{}, err
	}
	return s.action(ctx, action)
}

// end ends an action, and removes its marks. The rows stay, so that Action.Matched still counts them. After a replay they do not change any more,
// because only a marked letter gets an outcome: they are counted once, so that a list of actions does not count them again.
func end(ctx context.Context, q Queryer, st *dialect.Operator, action ops.ActionID, note string) error {
	n, err := affected(q.ExecContext(ctx, st.EndAction, columns.Text(note), id(action)))
	if err != nil || n == 0 {
		return err
	}
	if _, err = q.ExecContext(ctx, st.Unmark, string(observe.Held), id(action)); err != nil {
		return err
	}
	a := ops.Action{ID: action}
	if err := count(ctx, q, st, &a); err != nil {
		return err
	}
	counts, err := json.Marshal(a.Results)
	if err == nil {
		_, err = q.ExecContext(ctx, st.Count, string(counts), id(action))
	}
	return err
}

func (s *Service) action(ctx context.Context, action ops.ActionID) (ops.Action, error) {
	found, err := s.Actions(ctx, ops.ActionFilter{ID: action})
	switch {
	case err != nil:
		return ops.Action{}, err
	case len(found) == 0:
		return ops.Action{}, fmt.Errorf("%w: %v", ops.ErrNoAction, action)
	}
	return found[0], nil
}

// Actions implements ops.Requester.
func (s *Service) Actions(ctx context.Context, f ops.ActionFilter) (actions []ops.Action, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	args := []any{
		id(f.ID), id(f.ID), f.Consumer, f.Consumer, string(f.Kind), string(f.Kind), flag(f.Open), micros(f.Before), micros(f.Before), f.Limit,
	}
	err = s.DB.Read(ctx, "actions", func(ctx context.Context, q Queryer) error {
		actions = nil
		if err := each(ctx, q, st.Actions, args, func(rows *sql.Rows) error {
			a, err := scanAction(rows)
			actions = append(actions, a)
			return err
		}); err != nil {
			return err
		}
		for i := range actions {
			if actions[i].Results != nil {
				continue // they were counted when it ended
			}
			if err := count(ctx, q, st, &actions[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return actions, err
}

func scanAction(rows *sql.Rows) (a ops.Action, err error) {
	var digits string
	var consumer []byte
	var asNew int
	var requested, ended int64
	var counts string
	if err := rows.Scan(&digits, &a.Kind, &consumer, &a.Who, &a.Reason, &a.Filter, &a.Key, &asNew, &a.Rate, &a.MaxFailures, &requested, &ended, &a.Note, &counts); err != nil {
		return a, err
	}
	if counts != "" && (a.Kind == ops.Replay || a.Kind == ops.Repair) { // a discard goes on if another person ends it
		if err := json.Unmarshal([]byte(counts), &a.Results); err != nil {
			return a, fmt.Errorf("operator: the counts of an action arrived as %q: %w", counts, err)
		}
		for _, n := range a.Results {
			a.Matched += n
		}
	}
	a.Consumer, a.AsNew, a.Requested, a.Ended = string(consumer), asNew != 0, instant(requested), instant(ended)
	a.ID, err = parseID(digits)
	return a, err
}

func count(ctx context.Context, q Queryer, st *dialect.Operator, a *ops.Action) error {
	a.Results = map[observe.Outcome]int{}
	return each(ctx, q, st.Counts, []any{id(a.ID)}, func(rows *sql.Rows) error {
		var outcome string
		var n int
		if err := rows.Scan(&outcome, &n); err != nil {
			return err
		}
		a.Matched += n
		if outcome == "" {
			a.Waiting = n
		} else {
			a.Results[observe.Outcome(outcome)] = n
		}
		return nil
	})
}

// Results implements ops.Requester.
func (s *Service) Results(ctx context.Context, f ops.ResultFilter) (results []ops.Result, err error) {
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
	err = s.DB.Read(ctx, "results", func(ctx context.Context, q Queryer) error {
		results = nil
		return each(ctx, q, query, args, func(rows *sql.Rows) error {
			r := ops.Result{Action: f.Action}
			var digits string
			var at int64
			if err := rows.Scan(&digits, &r.Outcome, &r.Cause, &r.Error, &at, &r.Tries); err != nil {
				return err
			}
			letter, err := parseID(digits)
			r.Letter, r.At = letter, instant(at)
			results = append(results, r)
			return err
		})
	})
	return results, err
}
