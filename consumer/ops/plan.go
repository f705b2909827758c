package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// ReplayPlan is what a request would do now.
type ReplayPlan struct {
	Match     int                   // letters that the filter chooses
	Run       int                   // whose handlers would run
	Processed int                   // that were processed meanwhile: their letters would be removed
	Refused   map[observe.Cause]int // that need Request.AsNew or, for a mismatch, Request.Key; by reason
}

// PlanReplay finds out what r would do, and changes nothing. It chooses letters as a request does: with a Limit the oldest, and if r.Kind is
// Replay none that another open request has marked. It reads them page by page, so the answer may be outdated at once, and it does not compare
// r.Expect.
func PlanReplay(ctx context.Context, s Store, r Request) (plan ReplayPlan, err error) {
	plan.Refused = map[observe.Cause]int{}
	marked, horizon := map[consumer.DeadLetterID]bool{}, time.Time{}
	if r.Kind == Replay {
		if marked, err = markedLetters(ctx, s, r.Filter.Consumer); err != nil {
			return plan, err
		}
		status, err := s.Status(ctx)
		if err != nil {
			return plan, err
		}
		for _, c := range status.Consumers {
			if c.Name == r.Filter.Consumer {
				horizon = c.Horizon
			}
		}
	}
	type fate struct {
		settled bool
		needs   observe.Cause
	}
	fates, err := oldest(ctx, s, r.Filter, func(l consumer.DeadLetter) (fate, bool) { return fate{l.Settled, needs(l, r, horizon)}, !marked[l.ID] })
	plan.Match = len(fates)
	for _, f := range fates {
		switch {
		case f.settled:
			plan.Processed++
		case f.needs != "":
			plan.Refused[f.needs]++
		default:
			plan.Run++
		}
	}
	return plan, err
}

// markedLetters returns the letters that wait for open requests.
func markedLetters(ctx context.Context, s Store, name string) (map[consumer.DeadLetterID]bool, error) {
	marked := map[consumer.DeadLetterID]bool{}
	open, err := s.Actions(ctx, ActionFilter{Kind: Replay, Consumer: name, Open: true, Limit: math.MaxInt32})
	if err != nil {
		return nil, err
	}
	for _, action := range open {
		results, err := s.Results(ctx, ResultFilter{Action: action.ID, Limit: math.MaxInt32})
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if r.Outcome == "" {
				marked[r.Letter] = true
			}
		}
	}
	return marked, nil
}

// oldest returns what choose makes of the letters that filter and choose choose, oldest first. A filter.Limit counts from the oldest, so that
// letters that are parked meanwhile do not change which ones are chosen.
func oldest[T any](ctx context.Context, s Store, filter consumer.DeadLetterFilter, choose func(consumer.DeadLetter) (T, bool)) (chosen []T, err error) {
	limit := filter.Limit
	filter.Limit = 0
	err = eachLetter(ctx, s, filter, func(l consumer.DeadLetter) bool {
		if one, ok := choose(l); ok {
			chosen = append(chosen, one)
		}
		return true
	})
	slices.Reverse(chosen)
	if limit > 0 {
		chosen = chosen[:min(limit, len(chosen))]
	}
	return chosen, err
}

// needs returns why a replay of l would be refused; empty: it would not. See consumer.Replay. Since it was parked it may have become too old for
// a proof that it is new.
func needs(l consumer.DeadLetter, r Request, horizon time.Time) observe.Cause {
	switch l.Reason {
	case observe.CauseMismatch:
		if r.Key == "" || r.Key == l.Record.Key.ID {
			return l.Reason
		}
	case observe.CauseUnprovable, observe.CauseReplay, observe.CauseUnknown:
		if !r.AsNew {
			return l.Reason
		}
	case observe.CauseNoKey:
		if r.Key == "" {
			return l.Reason
		}
	default:
	}
	if at := l.Record.Time; !r.AsNew && !at.IsZero() && !at.After(horizon) {
		return observe.CauseUnprovable
	}
	return ""
}

// eachLetter calls f for each letter that filter chooses, newest first, until f returns false. filter.Limit is ignored.
func eachLetter(ctx context.Context, s Store, filter consumer.DeadLetterFilter, f func(consumer.DeadLetter) bool) error {
	filter.Limit = pageSize
	for {
		page, err := s.DeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		for _, l := range page {
			if !f(l) {
				return nil
			}
		}
		if len(page) < pageSize {
			return nil
		}
		filter.After = page[len(page)-1].Cursor()
	}
}

const pageSize = 100

// DiscardLetters discards the letters that r.Filter chooses, oldest first, in this process, and records the action with one result for each. A
// Limit counts from the oldest. After an error or a crash some are discarded: the returned Action, or the action in the database, shows how
// many. Call it again for the others. r.Kind must be Discard.
func DiscardLetters(ctx context.Context, s Store, r Request) (Action, error) {
	if r.Kind != Discard {
		return Action{}, fmt.Errorf("ops: Request.Kind is %q, want discard", r.Kind)
	}
	if err := r.Validate(); err != nil {
		return Action{}, err
	}
	if bare := (consumer.DeadLetterFilter{Limit: r.Filter.Limit, After: r.Filter.After}); r.Filter == bare {
		return Action{}, errors.New("ops: discard: the filter has no condition and chooses the dead letters of all consumers: set Filter.Consumer or another field")
	}
	letters, err := oldest(ctx, s, r.Filter, func(l consumer.DeadLetter) (consumer.DeadLetter, bool) {
		l.Message.Payload, l.Message.Headers = nil, nil
		return l, true
	})
	if err != nil {
		return Action{}, err
	}
	if r.Expect >= 0 && len(letters) != r.Expect {
		return Action{}, fmt.Errorf("%w: %d match, %d are expected", ErrExpected, len(letters), r.Expect)
	}
	action, err := s.Request(ctx, r)
	if err != nil {
		return Action{}, err
	}
	note := "done"
	for _, l := range letters {
		if err = s.DiscardLetter(ctx, action.ID, l); err != nil && !errors.Is(err, consumer.ErrNotParked) { // else it is gone already
			note = "ended by an error: " + err.Error()
			break
		}
		err = nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	ended, endErr := s.End(end, action.ID, note)
	if endErr != nil {
		ended = action
	}
	return ended, errors.Join(err, endErr)
}

// endWithin limits the last step of an action that was interrupted.
const endWithin = 10 * time.Second

// UnparkMessages makes the parked messages of the outbox pending again that filter chooses, and records it. It returns their number. See
// outbox.UnparkAll.
func UnparkMessages(ctx context.Context, s Store, filter outbox.ParkedFilter, who, reason string) (Action, int, error) {
	return changeOutbox(ctx, s, Request{Kind: Unpark, Who: who, Reason: reason, Expect: -1}, filter, outbox.UnparkAll)
}

// DiscardMessages deletes the parked messages of the outbox that filter chooses, and records it. It returns their number. See
// outbox.DiscardAll.
func DiscardMessages(ctx context.Context, s Store, filter outbox.ParkedFilter, who, reason string) (Action, int, error) {
	return changeOutbox(ctx, s, Request{Kind: DiscardOutbox, Who: who, Reason: reason, Expect: -1}, filter, outbox.DiscardAll)
}

// changeOutbox records the action first, so that no change is without a record. The record says what was chosen. It does not say how many
// messages were changed, or that the change failed: both are told to the caller only.
func changeOutbox(ctx context.Context, s Store, r Request, filter outbox.ParkedFilter,
	change func(context.Context, outbox.Operations, outbox.ParkedFilter) (int, error),
) (Action, int, error) {
	r.Note = DescribeParked(filter)
	action, err := s.Request(ctx, r)
	if err != nil {
		return Action{}, 0, err
	}
	n, err := change(ctx, s.Outbox(), filter)
	return action, n, err
}

// DescribeParked names the conditions of a filter in words, for Request.Note.
func DescribeParked(f outbox.ParkedFilter) string {
	text := "parked messages of the outbox"
	add := func(name, value string) {
		if value != "" {
			text += fmt.Sprintf(", %s %q", name, value)
		}
	}
	add("topic", f.Topic)
	add("key", f.Key)
	add("cause", f.Cause)
	if !f.Since.IsZero() {
		add("since", f.Since.UTC().String())
	}
	if !f.Until.IsZero() {
		add("until", f.Until.UTC().String())
	}
	if f.Limit > 0 {
		text += fmt.Sprintf(", limit %d", f.Limit)
	}
	return text
}
