package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// letterPage is how many letters, with their payloads, are read at once.
const letterPage = 100

// EachLetter calls f for the letters that filter chooses, newest first, until f fails. Filter.Limit limits their number; 0: all. Letters
// that are parked meanwhile may be left out.
func EachLetter(ctx context.Context, s LetterKeeper, filter consumer.DeadLetterFilter, f func(consumer.DeadLetter) error) error {
	left := filter.Limit
	for {
		filter.Limit = letterPage
		if left > 0 {
			filter.Limit = min(left, letterPage)
		}
		page, err := s.DeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		for _, l := range page {
			if err := f(l); err != nil {
				return err
			}
		}
		if len(page) < filter.Limit || left > 0 && left == len(page) {
			return nil
		}
		if left > 0 {
			left -= len(page)
		}
		filter.After = page[len(page)-1].Cursor()
	}
}

// ReplayPlan is what a Request to replay would meet.
type ReplayPlan struct {
	Match     int                   // letters that the filter chooses
	Run       int                   // handlers would run for these
	Processed int                   // these were processed since they were parked: they would only be removed
	Refused   map[observe.Cause]int // by reason: these need Request.Key or Request.AsNew
}

// PlanReplay counts what r would do, without doing it. It reads all letters that r.Filter chooses. Letters that another request has marked
// count here too, although Request leaves them out. Whether a handler fails is not known before it runs.
func PlanReplay(ctx context.Context, s LetterKeeper, r Request) (ReplayPlan, error) {
	plan := ReplayPlan{Refused: map[observe.Cause]int{}}
	err := EachLetter(ctx, s, r.Filter, func(l consumer.DeadLetter) error {
		plan.Match++
		switch {
		case l.Settled:
			plan.Processed++
		case needs(l, r):
			plan.Refused[l.Reason]++
		default:
			plan.Run++
		}
		return nil
	})
	if err != nil {
		return ReplayPlan{}, fmt.Errorf("ops: plan: %w", err)
	}
	return plan, nil
}

// needs reports whether a replay of l needs a decision that r does not state. It knows what consumer.Replay refuses.
func needs(l consumer.DeadLetter, r Request) bool {
	switch l.Reason {
	case observe.CauseMismatch:
		return r.Key == "" || r.Key == l.Record.Key.ID
	case observe.CauseUnprovable, observe.CauseReplay, observe.CauseUnknown:
		return !r.AsNew
	}
	return false
}

// DiscardLetters discards the letters that r.Filter chooses, each in a transaction of its own that also records it, and returns the
// action. r.Kind must be Discard. If it fails or ctx ends, some letters are discarded, and the action stays open: its results say which.
// Letters that other programs remove meanwhile are no error.
func DiscardLetters(ctx context.Context, s Store, r Request) (Action, error) {
	if r.Kind != Discard {
		return Action{}, fmt.Errorf("ops: discard: Request.Kind is %q: want %q", r.Kind, Discard)
	}
	if r.Expect >= 0 {
		n := 0
		if err := EachLetter(ctx, s, r.Filter, func(consumer.DeadLetter) error { n++; return nil }); err != nil {
			return Action{}, fmt.Errorf("ops: discard: %w", err)
		}
		if n != r.Expect {
			return Action{}, fmt.Errorf("%w: %d match, %d are expected", ErrExpected, n, r.Expect)
		}
	}
	action, err := s.Request(ctx, r)
	if err != nil {
		return Action{}, fmt.Errorf("ops: discard: %w", err)
	}
	err = EachLetter(ctx, s, r.Filter, func(l consumer.DeadLetter) error {
		if err := s.DiscardLetter(ctx, action.ID, l); !errors.Is(err, consumer.ErrNotParked) {
			return err
		}
		return nil
	})
	if err != nil {
		return action, fmt.Errorf("ops: discard: action %v: %w", action.ID, err)
	}
	return s.End(ctx, action.ID, "all letters are discarded")
}

// UnparkMessages records who unparks messages of the outbox and why, unparks those that filter chooses, and returns their number. After a
// crash or an error some are unparked; call it again.
func UnparkMessages(ctx context.Context, s Store, filter outbox.ParkedFilter, who, reason string) (Action, int, error) {
	return changeOutbox(ctx, s, Unpark, outbox.UnparkAll, filter, who, reason)
}

// DiscardMessages records who deletes messages of the outbox and why, deletes those that filter chooses, and returns their number. After a
// crash or an error some are deleted; call it again. See outbox.DiscardAll for the filters that it refuses.
func DiscardMessages(ctx context.Context, s Store, filter outbox.ParkedFilter, who, reason string) (Action, int, error) {
	return changeOutbox(ctx, s, DiscardOutbox, outbox.DiscardAll, filter, who, reason)
}

func changeOutbox(ctx context.Context, s Store, kind Kind, change func(context.Context, outbox.Operations, outbox.ParkedFilter) (int, error),
	filter outbox.ParkedFilter, who, reason string,
) (Action, int, error) {
	action, err := s.Request(ctx, Request{Kind: kind, Who: who, Reason: reason, Note: describeParked(filter), Expect: -1})
	if err != nil {
		return Action{}, 0, fmt.Errorf("ops: %s: %w", kind, err)
	}
	n, err := change(ctx, s.Outbox(), filter)
	return action, n, err
}

func describeParked(f outbox.ParkedFilter) string {
	text := ""
	for _, field := range []struct{ name, value string }{{"topic", f.Topic}, {"key", f.Key}, {"cause", f.Cause}} {
		if field.value != "" {
			text += fmt.Sprintf("%s %q ", field.name, field.value)
		}
	}
	if !f.Since.IsZero() {
		text += "since " + f.Since.UTC().Format("2006-01-02T15:04:05.999999Z") + " "
	}
	if !f.Until.IsZero() {
		text += "until " + f.Until.UTC().Format("2006-01-02T15:04:05.999999Z") + " "
	}
	if f.Limit > 0 {
		text += fmt.Sprintf("at most %d ", f.Limit)
	}
	if text == "" {
		return "all parked messages"
	}
	return text[:len(text)-1]
}
