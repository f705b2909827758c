package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// eachLetter calls f for each letter that filter chooses, newest first.
func eachLetter(ctx context.Context, s Store, filter consumer.DeadLetterFilter, f func(consumer.DeadLetter) error) error {
	left := filter.Limit
	for {
		filter.Limit = pageSize
		if left > 0 {
			filter.Limit = min(left, pageSize)
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
		if left > 0 {
			if left -= len(page); left == 0 {
				return nil
			}
		}
		if len(page) < filter.Limit {
			return nil
		}
		filter.After = page[len(page)-1].Cursor()
	}
}

const pageSize = 100

// CountLetters counts the letters that filter chooses, page by page. A Limit of 0 means all.
func CountLetters(ctx context.Context, s Store, filter consumer.DeadLetterFilter) (n int, err error) {
	err = eachLetter(ctx, s, filter, func(consumer.DeadLetter) error { n++; return nil })
	return n, err
}

// DiscardLetters discards the letters that r.Filter chooses, in this process, and records the action with one result for each. After an
// error or a crash some are discarded; the action shows which. Call it again for the others. r.Kind must be Discard.
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
	var letters []consumer.DeadLetter
	if err := eachLetter(ctx, s, r.Filter, func(l consumer.DeadLetter) error {
		l.Message.Payload, l.Message.Headers = nil, nil
		letters = append(letters, l)
		return nil
	}); err != nil {
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
	ended, endErr := s.End(context.WithoutCancel(ctx), action.ID, note)
	return ended, errors.Join(err, endErr)
}

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
	r.Note = describeParked(filter)
	action, err := s.Request(ctx, r)
	if err != nil {
		return Action{}, 0, err
	}
	n, err := change(ctx, s.Outbox(), filter)
	return action, n, err
}

// describeParked names the conditions of a filter, for people.
func describeParked(f outbox.ParkedFilter) string {
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
	return text
}
