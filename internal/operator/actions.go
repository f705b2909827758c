package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
	"github.com/txonce/txonce/observe"
)

// Request implements ops.Requester.
func (s *Service) Request(ctx context.Context, r ops.Request) (ops.Action, error) {
	if err := r.Validate(); err != nil {
		return ops.Action{}, err
	}
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return ops.Action{}, err
	}
	action := ops.ActionID{}
	rand.Read(action[:]) // never fails
	conditions, note := describe(r.Filter), columns.Text(r.Note)
	if r.Kind == ops.Repair {
		sum := sha256.Sum256(r.Payload)
		conditions["payload_bytes"], conditions["payload_sha256"] = len(r.Payload), hex.EncodeToString(sum[:])
		note = base64.StdEncoding.EncodeToString(r.Payload) // until it ends
	}
	filter, err := json.Marshal(conditions)
	if err != nil {
		return ops.Action{}, fmt.Errorf("ops: request: %w", err)
	}
	var refused error
	err = s.DB.Write(ctx, "request", func(ctx context.Context, q Queryer) error {
		refused = nil
		_, err := q.ExecContext(ctx, st.AddAction, id(action), string(r.Kind), r.Filter.Consumer, columns.Text(r.Who),
			columns.Text(r.Reason), columns.Text(string(filter)),
			r.Key, flag(r.AsNew), r.Rate, r.MaxFailures,
			flag(r.Kind == ops.Unpark || r.Kind == ops.Answer || r.Kind == ops.DiscardOutbox), note)
		if err != nil || r.Kind != ops.Replay && r.Kind != ops.Repair {
			return err
		}
		limit := r.Filter.Limit
		if limit <= 0 {
			limit = math.MaxInt32
		}
		mark, args := st.Choose(st.MarkLetters, letterFilter(r.Filter))
		n, err := affected(q.ExecContext(ctx, mark, append(append([]any{id(action)}, args...), limit)...))
		expect := r.Expect
		if r.Kind == ops.Repair {
			expect = 1
		}
		if err == nil && expect >= 0 && n != int64(expect) {
			refused = fmt.Errorf("%w: %d match, %d are expected", ops.ErrExpected, n, expect)
			return refused
		}
		return err
	})
	if refused != nil {
		err = refused
	}
	if err != nil {
		return ops.Action{}, err
	}
	requested, err := s.action(ctx, action)
	if err != nil {
		return ops.Action{ID: action}, fmt.Errorf("ops: action %v is requested, but cannot be read: %w", action, err)
	}
	return requested, nil
}

// describe returns the conditions of a filter, for people.
func describe(f consumer.DeadLetterFilter) map[string]any {
	d := map[string]any{}
	for name, text := range map[string]string{
		"consumer": f.Consumer, "cause": string(f.Cause), "topic": f.Topic, "message_id": f.MessageID,
		"tenant": f.Tenant, "position": f.Position, "error": f.Error,
	} {
		if text != "" {
			d[name] = text
		}
	}
	if f.ID != (consumer.DeadLetterID{}) {
		d["id"] = f.ID.String()
	}
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			d[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	if f.Limit > 0 {
		d["limit"] = f.Limit
	}
	return d
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// End implements ops.Requester.
func (s *Service) End(ctx context.Context, action ops.ActionID, note string) (ops.Action, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return ops.Action{}, err
	}
	if err := s.DB.Write(ctx, "end", func(ctx context.Context,
		q Queryer,
	) error {
		return end(ctx, q, st, action, note)
	}); err != nil {
		return ops.Action{}, err
	}
	return s.action(ctx, action)
}

// end ends an action, and removes its marks. The rows stay, so that Action.Matched still counts them. After a replay
// they do not change any more, because only a marked letter gets an outcome: they are counted once, so that a list of
// actions does not count them again.
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
		id(f.ID), id(f.ID), f.Consumer, f.Consumer, string(f.Kind), string(f.Kind), flag(f.Open), micros(f.Before),
		micros(f.Before), f.Limit,
	}
	err = s.DB.Read(ctx, "actions", func(ctx context.Context, q Queryer) error {
		actions = nil
		if err := sqlrows.Each(ctx, q, st.Actions, args, func(rows *sql.Rows) error {
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
	if err := rows.Scan(&digits, &a.Kind, &consumer, &a.Who, &a.Reason, &a.Filter, &a.Key, &asNew, &a.Rate,
		&a.MaxFailures, &requested, &ended, &a.Note, &counts); err != nil {
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
	return sqlrows.Each(ctx, q, st.Counts, []any{id(a.ID)}, func(rows *sql.Rows) error {
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
