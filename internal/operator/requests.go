package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/columns"
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
		_, err := q.ExecContext(ctx, st.AddAction, id(action), string(r.Kind), r.Filter.Consumer, columns.Text(r.Who), columns.Text(r.Reason), columns.Text(string(filter)),
			r.Key, flag(r.AsNew), r.Rate, r.MaxFailures, flag(r.Kind == ops.Unpark || r.Kind == ops.DiscardOutbox), note)
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
		"consumer": f.Consumer, "reason": string(f.Reason), "topic": f.Topic, "message_id": f.MessageID, "tenant": f.Tenant, "position": f.Position, "cause": f.Cause,
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
